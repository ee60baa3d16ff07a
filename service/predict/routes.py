"""Doors to the models: `POST /predict`, with its longer paths that name the model, and whatever else is such a door.

`service.http.middleware` calls their routes itself; the framework has them for OpenAPI, and to refuse other methods.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from murho.service.parts import PartsDependency  # noqa: TC001 - the framework reads the annotation
from murho.service.predict.answers import ClassPredictResponse, PredictResponse, Terms
from murho.service.predict.formats import LARGE_ANSWER_VALUES, MEDIA_TYPES, codecs_of
from murho.service.predict.in_flight import InFlight
from murho.service.predict.options import PredictRequest
from murho.service.predict.spool import Spool, accepted_coding, response_of
from murho.service.tables.large_tables import LARGE_BYTES, answer_in_blocks, may_be_large

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pydantic import BaseModel

    from murho.service.predict.answers import Codec

__all__ = ["DOOR", "OF_MODELS", "REFERENCE", "Door", "answer"]

OF_MODELS = ("", "/models/{name}", "/models/{name}/versions/{version}")
"""What paths begin with that lead to the default model, to a model, and to one of its versions."""
WHOSE = ("the only model, or the default one", "the latest version of a model", "one version of a model")
SUFFIXES = ("", "_with_model", "_with_version")
REFERENCE = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Door:
    """One thing to ask a model, at one path or more.

    Attributes:
        name: Of its first path, in OpenAPI; the others say what they name besides.
        paths: The paths.
        summary: What it does, before the words that say which model does it.
        about: More of it.
        respond: Answers a request; raises `MurhoError` if there is no answer (`errors.problem_details`).
        asked: The document of a request.
        answered: The documents of its answer.
        tables: What the columns of tables as bodies are, in the request and in the answer; empty: there are none.
        tag: Where OpenAPI lists it.
    """

    name: str
    paths: tuple[str, ...]
    summary: str
    about: str
    respond: Callable[[InFlight], Awaitable[Response]]
    asked: type[BaseModel]
    answered: tuple[type[BaseModel], ...]
    tables: tuple[str, str] = ("", "")
    tag: str = "predict"

    async def _call(self, request: Request, parts: PartsDependency) -> Response:
        named = request.path_params
        with InFlight(parts, request.scope, request.receive, named.get("name"), named.get("version")) as call:
            return await self.respond(call)

    def router(self) -> APIRouter:
        """Returns the routes."""
        router = APIRouter(tags=[self.tag])
        body = {"required": True, "content": _content((self.asked,), self.tables[0])}
        for index, path in enumerate(self.paths):
            named = re.findall(r"{(\w+)}", path)
            router.add_api_route(
                path,
                self._call,
                methods=["POST"],
                name=self.name + SUFFIXES[len(named) if index else 0],
                summary=f"{self.summary} {WHOSE[len(named)]}",
                description=self.about,
                responses={200: {"content": _content(self.answered, self.tables[1])}},
                openapi_extra={
                    "requestBody": body,
                    "parameters": [
                        {"name": each, "in": "path", "required": True, "schema": {"type": "string"}} for each in named
                    ],
                },
            )
        return router


def _content(models: tuple[type[BaseModel], ...], table: str) -> dict[str, Any]:
    """Returns a body of one of these documents, or a table, as OpenAPI has it."""
    references = [{"$ref": REFERENCE.format(model=model.__name__)} for model in models]
    binary = {"schema": {"type": "string", "format": "binary", "description": table}}
    tables = dict.fromkeys(MEDIA_TYPES[1:], binary) if table else {}
    return {"application/json": {"schema": references[0] if len(references) == 1 else {"anyOf": references}}, **tables}


async def answer(call: InFlight, codecs: Callable[[Mapping[str, str]], tuple[Codec, Codec]] = codecs_of) -> Response:
    """Answers one request for predictions.

    Args:
        call: The request.
        codecs: The codecs of a request with some headers, and of its answer.

    Raises:
        MurhoError: There is no answer; `errors.problem_details` has the HTTP status.
    """
    parts, headers = call.parts, call.headers
    reader, writer = codecs(headers)
    terms, encoding = Terms(call.query, call.model.schema, parts.settings), headers.get("content-encoding", "")
    if reader.in_blocks and writer.in_blocks and may_be_large(headers):
        with Spool(parts.spool_room) as spool:
            await call.body(spool)
            response = await answer_in_blocks(call, spool, reader, writer, terms)
            if response is not None:
                return response
            body = await parts.decoder.in_thread(spool.whole) if spool.size > LARGE_BYTES else spool.whole()
    else:
        body = await call.body()
    asked = await parts.decoder.decode(body, encoding, reader, terms)
    del body
    writer.require_place(asked.options)
    answered = await call.predict(asked, recorded=writer.records)
    large, accepted = answered.values > LARGE_ANSWER_VALUES, accepted_coding(headers.get("accept-encoding", ""))

    def work() -> Response:
        return response_of(writer.encode(answered), accepted, parts.spool_room if large else None)

    return await parts.decoder.in_thread(work) if large else work()


DOOR = Door(
    "predict",
    tuple(f"{model}/predict" for model in OF_MODELS),
    "Predict with",
    "Answers each row with the mean, the standard deviation and percentiles of the posterior predictive. A classifier "
    "answers with the likeliest class, the probabilities of all classes and a set of classes.",
    answer,
    PredictRequest,
    (PredictResponse, ClassPredictResponse),
    (
        "One column a feature; options are query parameters.",
        "mean, std, epistemic_std, aleatoric_std, p5, …; of a classifier prediction, p_CLASS, …, entropy, "
        "epistemic_entropy, prediction_set, …",
    ),
)
