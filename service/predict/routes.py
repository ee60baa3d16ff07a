"""`POST /predict` and its longer paths that name the model; `service.http.middleware` calls them."""

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from starlette.datastructures import QueryParams

from murho.service.parts import Parts, PartsDependency
from murho.service.predict.formats import LARGE_ANSWER_VALUES, Coding, codecs_of
from murho.service.predict.in_flight import InFlight
from murho.service.predict.spool import Spool, accepted_coding, response_of
from murho.service.tables.large_tables import LARGE_BYTES, answer_in_blocks, may_be_large

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from murho.service.predict.answers import Answered, Codec

__all__ = ["answer", "respond", "router"]

router = APIRouter(tags=["predict"])


@router.post("/predict", summary="Predict with the only model, or the default one", name="predict")
async def _predict(request: Request, parts: PartsDependency) -> Response:
    """Answers each row with the mean, the standard deviation and percentiles of the posterior predictive.

    A classifier answers with the likeliest class, the probabilities of all classes and a set of classes.
    """
    return await answer(request, parts)


@router.post("/models/{name}/predict", summary="Predict with the latest version of a model", name="predict_with_model")
async def _predict_with_model(request: Request, parts: PartsDependency, name: str) -> Response:
    """Answers like POST /predict, from the named model."""
    return await answer(request, parts, name)


@router.post(
    "/models/{name}/versions/{version}/predict",
    summary="Predict with one version of a model",
    name="predict_with_version",
)
async def _predict_with_version(request: Request, parts: PartsDependency, name: str, version: str) -> Response:
    """Answers like POST /predict, from the named version of the named model."""
    return await answer(request, parts, name, version)


async def answer(
    request: Request,
    parts: Parts,
    name: str | None = None,
    version: str | None = None,
    codecs: "Callable[[str, str], tuple[Codec, Codec]]" = codecs_of,
) -> Response:
    """Answers one request for predictions.

    Args:
        request: The request.
        parts: The parts of the service.
        name: The model; None for the default one.
        version: Its version; None for the latest.
        codecs: The codecs of the request and the answer, from the headers `Content-Type` and `Accept`.

    Raises:
        MurhoError: There is no answer; `errors.problem_details` has the HTTP status.
    """
    with InFlight(parts, request.scope, request.receive) as call:
        model = call.find(name, version)
        headers = call.headers
        reader, writer = codecs(headers.get("content-type", ""), headers.get("accept", ""))
        query = request.scope["query_string"]
        coding = Coding(reader, headers.get("content-encoding", ""), QueryParams(query) if query else {})
        if may_be_large(coding, writer, headers):
            with Spool(parts.spool_room) as spool:
                await call.spool(spool)
                response = await answer_in_blocks(call, model, spool, coding, writer)
                if response is not None:
                    return response
                body = await parts.decoder.in_thread(spool.whole) if spool.size > LARGE_BYTES else spool.whole()
        else:
            body = await call.body()
        asked = await parts.decoder.decode_request(body, coding, model.schema)
        del body
        writer.require_place(asked.options)
        answered = await call.predict(model, asked)

        def encode() -> "tuple[Iterable[bytes], Mapping[str, str], str]":
            own = {**writer.headers(answered), "vary": "accept, accept-encoding"}
            return writer.encode(answered), own, writer.media_type

        return await respond(parts, answered, headers.get("accept-encoding", ""), encode)


async def respond(
    parts: Parts,
    answered: "Answered",
    accept_encoding: str,
    encode: "Callable[[], tuple[Iterable[bytes], Mapping[str, str], str]]",
) -> Response:
    """Returns an answer, compressed if the client accepts that; a large one is encoded in a thread, into a spool.

    Args:
        parts: The parts of the service.
        answered: The answer.
        accept_encoding: The header `Accept-Encoding`.
        encode: Returns the body in pieces, its headers and its media type.
    """
    large = answered.values > LARGE_ANSWER_VALUES

    def work() -> Response:
        return response_of(*encode(), accepted_coding(accept_encoding), parts.spool_room if large else None)

    return await parts.decoder.in_thread(work) if large else work()
