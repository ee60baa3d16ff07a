"""`POST /invocations` and `GET /ping`: what MLflow's clients and SageMaker ask a scoring server.

The default model answers. Its JSON bodies are in `service.protocols.scoring`; CSV, Arrow, Parquet and npy are those of
`POST /predict`.
"""

from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope

from murho.model.errors import Problem
from murho.service.errors import BadInputError
from murho.service.http.responses import JSONBytes
from murho.service.parts import Parts, PartsDependency
from murho.service.predict.compression import accepted_coding
from murho.service.predict.formats import LARGE_ANSWER_VALUES, Coding, reader_of, writer_of
from murho.service.predict.in_flight import InFlight
from murho.service.predict.problems import pointer, shorten
from murho.service.predict.routes import encoded
from murho.service.protocols.scoring import encode_predictions, read_scoring
from murho.service.tables.spool import response_of

if TYPE_CHECKING:
    from murho.service.http.middleware import Found
    from murho.service.predict.answers import Answered
    from murho.service.tables.spool import SpoolRoom

__all__ = ["find", "invoke", "router"]

PATH = "/invocations"
ANY = frozenset({"", "*/*", "application/*", "application/json"})

router = APIRouter(tags=["scoring"])


def find(path: str) -> "Found | None":
    """Returns the route template and the answer of the path for scoring; None for any other path."""
    return (PATH, invoke) if path == PATH else None


@router.get("/ping", summary="Ready, as /readyz", name="ping")
async def _ping(parts: PartsDependency) -> JSONBytes:
    """Answers 200 if predictions are answered at full speed, else 503 and the reason."""
    parts.lifecycle.require_not_draining()
    parts.registry.snapshot.require_models()
    return JSONBytes({"status": "ready"})


@router.post(PATH, summary="Predict in the forms of MLflow and SageMaker", name="invocations")
async def _invoke(request: Request, parts: PartsDependency) -> Response:
    """Answers `{"predictions": [{"mean": …, "std": …, …}]}`, one object a row."""
    return await invoke(parts, request.scope, request.receive)


async def invoke(parts: Parts, scope: Scope, receive: Receive) -> Response:
    """Answers one request for scoring.

    Raises:
        MurhoError: There is no answer; `errors.problem_details` has the HTTP status.
    """
    with InFlight(parts, scope, receive) as call:
        model, headers = call.find(), call.headers
        reader = reader_of(headers.get("content-type", ""))
        encoding, accept = headers.get("content-encoding", ""), headers.get("accept", "")
        json_wanted = accept.partition(";")[0].strip().lower() in ANY
        json_reader = reader_of("application/json")
        writer = json_reader if json_wanted else writer_of(accept, json_reader)
        body = await call.body()
        query = QueryParams(scope["query_string"])
        if reader is json_reader:
            for name in query:
                message = "With a JSON body, options are in its params, not query parameters."
                raise BadInputError([Problem(pointer(name), f"{shorten(name)!r}: {message}")])
            read = partial(read_scoring, schema=model.schema, settings=parts.settings)
            asked = await parts.decoder.decode(body, encoding, model.schema, read)
        else:
            asked = await parts.decoder.decode_request(body, Coding(reader, encoding, query), model.schema)
        del body
        writer.require_place(asked.options)
        answered = await call.predict(model, asked)
        accepted = headers.get("accept-encoding", "")
        if writer is not json_reader:
            return await encoded(parts, writer, answered, accepted)
        large = answered.values > LARGE_ANSWER_VALUES
        room, coding = parts.spool_room if large else None, accepted_coding(accepted)
        return await parts.decoder.in_thread_if(large, partial(_predictions, answered, room, coding))


def _predictions(answered: "Answered", room: "SpoolRoom | None", coding: str | None) -> Response:
    headers = {"vary": "accept, accept-encoding"}
    return response_of(encode_predictions(answered), room, headers, "application/json", coding)
