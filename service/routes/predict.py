"""`POST /predict` and its longer paths that name the model.

Requests come by `PredictPaths`, plain ASGI ahead of the framework. The routes of the framework call the same
`answer`; they are there for OpenAPI, and answer methods other than POST.
"""

from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from murho.model.engines.answer_fields import answer_size
from murho.model.errors import MurhoError, Problem
from murho.service.codecs.answer import MAX_WARNINGS, describe_outside
from murho.service.codecs.codec import Answered
from murho.service.codecs.formats import reader_of, writer_of
from murho.service.compression import accepts_gzip, gzipped
from murho.service.decoding import Coding
from murho.service.errors import BadInputError
from murho.service.exchange import headers_of, read_body, wanted_within
from murho.service.parts import Parts, PartsDependency
from murho.service.predictor import RowsNotFiniteError, predict
from murho.service.responses import problem_response

if TYPE_CHECKING:
    from murho.service.codecs.codec import Codec
    from murho.service.jobs import ModelLike, Timing

__all__ = ["PredictPaths", "answer", "router"]

# Above this size, encoding takes more than a few milliseconds.
LARGE_ANSWER_VALUES = 50_000

TEMPLATES = ("/predict", "/models/{name}/predict", "/models/{name}/versions/{version}/predict")

router = APIRouter(tags=["predict"])


@router.post(TEMPLATES[0], summary="Predict with the only model, or the default one", name="predict")
async def _predict(request: Request, parts: PartsDependency) -> Response:
    """Answers each row with the mean, the standard deviation and percentiles of the posterior predictive.

    A classifier answers with the likeliest class, the probabilities of all classes and a set of classes.
    """
    return await answer(parts, request.scope, request.receive)


@router.post(TEMPLATES[1], summary="Predict with the latest version of a model", name="predict_with_model")
async def _predict_with_model(name: str, request: Request, parts: PartsDependency) -> Response:
    """Answers like POST /predict, from the named model."""
    return await answer(parts, request.scope, request.receive, name)


@router.post(TEMPLATES[2], summary="Predict with one version of a model", name="predict_with_version")
async def _predict_with_version(name: str, version: str, request: Request, parts: PartsDependency) -> Response:
    """Answers like POST /predict, from the named version of the named model."""
    return await answer(parts, request.scope, request.receive, name, version)


class PredictPaths:
    """ASGI middleware that answers predictions itself and hands everything else on.

    The framework's own way to a route takes longer than the answer of a row.
    """

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self.app = app
        self.parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        names = _names(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if names is None:
            await self.app(scope, receive, send)
            return
        state = scope["state"]
        state["route"] = TEMPLATES[len(names)]
        try:
            response = await answer(self.parts, scope, receive, *names)
        except MurhoError as error:
            response = problem_response(error, state["request_id"])
            if response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
        await response(scope, receive, send)


def _names(path: str) -> tuple[str, ...] | None:
    """Returns the names in a path for predictions, of the model and of the version; None for any other path."""
    if path == "/predict":
        return ()
    match path.split("/"):
        case ["", "models", name, "predict"] if name:
            return (name,)
        case ["", "models", name, "versions", version, "predict"] if name and version:
            return (name, version)
    return None


async def answer(
    parts: Parts, scope: Scope, receive: Receive, name: str | None = None, version: str | None = None
) -> Response:
    """Answers one request for predictions.

    Args:
        parts: The parts of the service.
        scope: The request.
        receive: Its messages.
        name: The model; None for the default one.
        version: Its version; None for the latest.

    Raises:
        MurhoError: There is no answer; `errors.problem_details` has the HTTP status.
    """
    parts.lifecycle.enter()
    try:
        return await _answer(parts, scope, receive, name, version)
    finally:
        parts.lifecycle.leave()


async def _answer(parts: Parts, scope: Scope, receive: Receive, name: str | None, version: str | None) -> Response:
    settings, scheduler = parts.settings, parts.scheduler
    begin = scheduler.clock()
    snapshot = parts.registry.snapshot
    model = snapshot.find_default(settings.default_model) if name is None else snapshot.find(name, version)
    headers = headers_of(scope)
    reader = reader_of(headers.get("content-type", ""))
    writer = writer_of(headers.get("accept", ""), reader)
    scheduler.require_room()
    body = await read_body(receive, headers, settings.request_timeout, settings.max_body_bytes)
    query = scope["query_string"]
    coding = Coding(reader, headers.get("content-encoding", ""), QueryParams(query) if query else {})
    asked = await parts.decoder.decode_request(body, coding, model.schema)
    inputs, options = asked.inputs, asked.options
    writer.require_place(options)
    caller, cost = scope["state"]["caller"], model.cost(inputs.count, options)
    scheduler.require_room(cost, inputs.count)
    parts.security.admit(caller, cost, requests=0)
    try:
        answered = await predict(
            scheduler,
            parts.waiting,
            model,
            inputs.columns,
            options,
            cost=cost,
            caller=caller.name,
            max_outside=MAX_WARNINGS + 1,
            deadline=begin + wanted_within(asked.timeout, headers, settings.request_timeout),
            receive=receive,
        )
    except RowsNotFiniteError as error:
        message = "The value is so far outside the training range that the prediction isn't finite."
        raise BadInputError(Problem(inputs.pointer(row, feature), message) for row, feature in error.cells) from None
    parts.telemetry.record(model.name, model.version, inputs.count, answered)
    scope["state"]["facts"] = _facts(caller.name, model, inputs.count, options.samples, answered.timing)
    warnings = describe_outside(answered.outside, inputs) if answered.outside else []
    named = (model.name, model.version)
    document = Answered(named, model.schema.target.name, options, answered.prediction, warnings)
    encode = partial(_encode, writer, document, compress=accepts_gzip(headers.get("accept-encoding", "")))
    return await parts.decoder.in_thread_if(answer_size(answered.prediction) > LARGE_ANSWER_VALUES, encode)


def _facts(caller: str, model: "ModelLike", rows: int, samples: int, timing: "Timing") -> dict[str, Any]:
    """Returns what the access log says of a prediction."""
    return {
        "caller": caller,
        "model": model.name,
        "version": model.version,
        "rows": rows,
        "samples": samples,
        "queue_ms": round(1000 * timing.queue, 2),
        "compute_ms": round(1000 * timing.compute, 2),
    }


def _encode(writer: "Codec", answered: Answered, *, compress: bool) -> Response:
    """Returns the answer in the format of a codec."""
    body = writer.encode(answered)
    headers = dict(writer.headers(answered))
    if compress and (small := gzipped(body)) is not None:
        body = small
        headers["content-encoding"] = "gzip"
    headers["vary"] = "accept, accept-encoding"
    return Response(body, headers=headers, media_type=writer.media_type)
