"""Doors to the models: `POST /predict`, with its longer paths that name the model, and whatever else is such a door.

`service.http.middleware` calls their routes itself; the framework has them for OpenAPI, and to refuse other methods.

`Content-Type` picks the codec that reads a request, `Accept` the one that writes its answer; without it, or with `*/*`,
the answer has the format of the request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import APIRouter, Request, Response

from murho.service.context import ContextDependency  # noqa: TC001 - the framework reads the annotation
from murho.service.errors import MediaTypeError, NotAcceptableError
from murho.service.predict.answers import (
    ClassPredictResponse,
    Codec,
    PredictResponse,
    Terms,
    whole,
)
from murho.service.predict.budgets import choose_coding, parse_weights
from murho.service.predict.in_flight import InFlight
from murho.service.predict.json_bodies import JSONCodec
from murho.service.predict.options import PredictRequest
from murho.service.predict.predictions import predict
from murho.service.tables.arrow_tables import ArrowCodec, ParquetCodec
from murho.service.tables.csv_tables import CSVCodec
from murho.service.tables.npy_arrays import NpyCodec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pydantic import BaseModel

ResultT = TypeVar("ResultT")

PARQUET = ParquetCodec()
CODECS: tuple[Codec, ...] = (JSONCodec(), CSVCodec(), ArrowCodec(), PARQUET, NpyCodec())
MEDIA_TYPES = tuple(codec.media_type for codec in CODECS)

LARGE_ANSWER_VALUES = 10_000
"""Encoding that many takes 1 ms, and to compress them another 4 ms."""


def codecs_of(headers: Mapping[str, str]) -> tuple[Codec, Codec]:
    """Return the codecs of a request with these headers and of its answer; raise what the next two raise."""
    reader = reader_of(headers.get("content-type", ""))
    return reader, writer_of(headers.get("accept", ""), reader)


@lru_cache(256)  # most clients send the same header with every request
def reader_of(content_type: str) -> Codec:
    """Return the codec that reads a body of this `Content-Type`; JSON for none.

    Raises:
        MediaTypeError: No codec reads it.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    for codec in CODECS:
        if codec.reads(media_type):
            return codec
    raise MediaTypeError(f"{media_type[:80]!r} isn't read here. Send one of {', '.join(MEDIA_TYPES)}.")


@lru_cache(256)
def writer_of(accept: str, reader: Codec) -> Codec:
    """Return the codec of the answer.

    Args:
        accept: The `Accept` header: media ranges with weights, the heaviest wins (RFC 9110, section 12.5.1).
        reader: The codec of the request, which wins ties.

    Raises:
        NotAcceptableError: No codec writes what is accepted.
    """
    ranges = parse_weights(accept) or [("*/*", 1.0)]
    best = max((reader, *CODECS), key=lambda codec: _quality(codec.media_type, ranges))  # the first of equal ones
    if not _quality(best.media_type, ranges):
        raise NotAcceptableError(f"{accept[:80]!r} isn't written here. Accept one of {', '.join(MEDIA_TYPES)}.")
    return best


def _quality(media_type: str, ranges: list[tuple[str, float]]) -> float:
    """Return the weight of a media type by the most specific range that fits it; 0 if none does."""
    family = media_type.partition("/")[0]
    for wanted in (media_type, f"{family}/*", "*/*"):
        for media_range, quality in ranges:
            if media_range == wanted:
                return quality
    return 0.0


OF_MODELS = ("", "/models/{name}", "/models/{name}/versions/{version}")
"""What paths begin with that lead to the default model, to a model, and to one of its versions."""
WHOSE = ("the only model, or the default one", "the latest version of a model", "one version of a model")
SUFFIXES = ("", "_with_model", "_with_version")
REFERENCE = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One thing to ask a model, at one path or more.

    Attributes:
        name: Of its first path, in OpenAPI; the others say what they name besides.
        paths: The paths.
        summary: What it does, before the words that say which model does it.
        about: More of it.
        respond: Answers a request; raises `MurhoError` if there is no answer (`errors.problem_details`).
        request_model: The document of a request.
        response_models: The documents of its answer.
        tables: What the columns of tables as bodies are, in the request and in the answer; empty: there are none.
        tag: Where OpenAPI lists it.
    """

    name: str
    paths: tuple[str, ...]
    summary: str
    about: str
    respond: Callable[[InFlight], Awaitable[Response]]
    request_model: type[BaseModel]
    response_models: tuple[type[BaseModel], ...]
    tables: tuple[str, str] = ("", "")
    tag: str = "predict"

    async def _call(self, request: Request, service: ContextDependency) -> Response:
        named = request.path_params
        with InFlight(service, request.scope, request.receive, named.get("name"), named.get("version")) as call:
            return await self.respond(call)

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(tags=[self.tag])
        body = {"required": True, "content": _content((self.request_model,), self.tables[0])}
        for index, path in enumerate(self.paths):
            named = re.findall(r"{(\w+)}", path)
            router.add_api_route(
                path,
                self._call,
                methods=["POST"],
                name=self.name + SUFFIXES[len(named) if index else 0],
                summary=f"{self.summary} {WHOSE[len(named)]}",
                description=self.about,
                responses={200: {"content": _content(self.response_models, self.tables[1])}},
                openapi_extra={
                    "requestBody": body,
                    "parameters": [
                        {"name": each, "in": "path", "required": True, "schema": {"type": "string"}} for each in named
                    ],
                },
            )
        return router


def _content(models: tuple[type[BaseModel], ...], table: str) -> dict[str, Any]:
    """Return a body of one of these documents, or a table, as OpenAPI has it."""
    references = [{"$ref": REFERENCE.format(model=model.__name__)} for model in models]
    binary = {"schema": {"type": "string", "format": "binary", "description": table}}
    tables = dict.fromkeys(MEDIA_TYPES[1:], binary) if table else {}
    return {"application/json": {"schema": references[0] if len(references) == 1 else {"anyOf": references}}, **tables}


async def answer(call: InFlight, codecs: Callable[[Mapping[str, str]], tuple[Codec, Codec]] = codecs_of) -> Response:
    """Answer one request for predictions.

    Args:
        call: The request.
        codecs: The codecs of a request with some headers, and of its answer.

    Raises:
        MurhoError: There is no answer; `errors.problem_details` has the HTTP status.
    """
    service, headers = call.service, call.headers
    reader, writer = codecs(headers)
    terms = Terms(call.query, call.model.schema, service.settings)
    parsed = await call.decode(reader.decode, terms, unpacks=reader.unpacks)
    result = await predict(call, parsed, writer)
    accepted = choose_coding(headers.get("accept-encoding", ""))
    if result.values > LARGE_ANSWER_VALUES:
        return call.large_response(await call.in_thread(lambda: whole(writer.encode(result), accepted)))
    content, media_type, sent = whole(writer.encode(result), accepted)
    return Response(content, headers=sent, media_type=media_type)


ENDPOINT = Endpoint(
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
