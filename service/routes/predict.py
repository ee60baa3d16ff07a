"""`POST /predict` and its longer paths that name the model."""

from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from murho.model.errors import Problem
from murho.service.codecs.answer import MAX_WARNINGS, describe_outside
from murho.service.codecs.codec import Answered
from murho.service.codecs.formats import reader_of, writer_of
from murho.service.compression import accepts_gzip, gzipped
from murho.service.decoding import Coding
from murho.service.errors import BadInputError
from murho.service.exchange import read_body, while_connected
from murho.service.parts import Parts, PartsDependency
from murho.service.predictor import RowsNotFiniteError

if TYPE_CHECKING:
    from murho.service.codecs.codec import Codec
    from murho.service.predictor import ModelLike

__all__ = ["router"]

# Above this size, encoding takes more than a few milliseconds.
LARGE_ANSWER_VALUES = 50_000

router = APIRouter(tags=["predict"])


@router.post("/predict", summary="Predict with the only model, or the default one")
async def predict(request: Request, parts: PartsDependency) -> Response:
    """Answers each row with the mean, the standard deviation and percentiles of the posterior predictive."""
    with parts.lifecycle.prediction():
        return await _answer(request, parts, parts.registry.snapshot.find_default(parts.settings.default_model))


@router.post("/models/{name}/predict", summary="Predict with the latest version of a model")
async def predict_with_model(name: str, request: Request, parts: PartsDependency) -> Response:
    """Answers like POST /predict, from the named model."""
    with parts.lifecycle.prediction():
        return await _answer(request, parts, parts.registry.snapshot.find(name))


@router.post("/models/{name}/versions/{version}/predict", summary="Predict with one version of a model")
async def predict_with_version(name: str, version: str, request: Request, parts: PartsDependency) -> Response:
    """Answers like POST /predict, from the named version of the named model."""
    with parts.lifecycle.prediction():
        return await _answer(request, parts, parts.registry.snapshot.find(name, version))


async def _answer(request: Request, parts: Parts, model: "ModelLike") -> Response:
    settings, headers = parts.settings, request.headers
    deadline = parts.scheduler.clock() + settings.request_timeout
    reader = reader_of(headers.get("content-type", ""))
    writer = writer_of(headers.get("accept", ""), reader)
    body = await read_body(request, settings.request_timeout)
    coding = Coding(reader, headers.get("content-encoding", ""), request.query_params)
    inputs, options = await parts.decoder.decode_request(body, coding, model.schema)
    parts.security.admit(request.scope["state"]["caller"], inputs.count * max(1, options.samples), requests=0)
    writer.require_place(options)
    work = parts.predictor.predict(model, inputs.columns, options, max_outside=MAX_WARNINGS + 1, deadline=deadline)
    try:
        answer = await while_connected(request, work)
    except RowsNotFiniteError as error:
        message = "The value is so far outside the training range that the prediction isn't finite."
        raise BadInputError(Problem(inputs.pointer(row, name), message) for row, name in error.cells) from None
    parts.telemetry.record(model.name, model.version, inputs.count, answer)
    warnings = describe_outside(answer.outside, inputs)
    name = (model.name, model.version)
    answered = Answered(name, model.schema.target.name, options, answer.prediction, warnings)
    values = inputs.count * (4 + len(options.percentiles) + options.samples * options.draws)
    values += inputs.count * (2 + len(options.percentiles)) * options.mc_error
    encode = partial(_encode, writer, answered, compress=accepts_gzip(headers.get("accept-encoding", "")))
    return await parts.decoder.in_thread_if(values > LARGE_ANSWER_VALUES, encode)


def _encode(writer: "Codec", answered: Answered, *, compress: bool) -> Response:
    """Returns the answer in the format of a codec."""
    body = writer.encode(answered)
    headers = dict(writer.headers(answered))
    if compress and (small := gzipped(body)) is not None:
        body = small
        headers["content-encoding"] = "gzip"
    headers["vary"] = "accept, accept-encoding"
    return Response(body, headers=headers, media_type=writer.media_type)
