"""The documents of protocols, read strictly by their types; and what is wrong with them, as each protocol says it.

The Open Inference Protocol has one text for an error, `{"error": "what is wrong"}`, with a status that isn't 200.
"""

from __future__ import annotations

from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.responses import Response

from murho.model.errors import Problem
from murho.service.errors import BadInputError
from murho.service.predict.problems import MAX_LISTED, pointer, shorten
from murho.service.predict.rows import JSON_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.service.errors import ProblemDetails

__all__ = ["InferenceError", "Strict", "error_response", "is_inference_path", "moved", "parsed", "wrong"]

MOST_SAID = 10
"""Problems of one request that are told to clients that show a line, not a list."""


EXPECTED = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "an object"),
    "list_type": "a list",
    "string_type": "a string",
    "int_type": "a whole number",
    "bool_type": "true or false",
}
"""What is expected, by the type of pydantic's error; other errors say it themselves."""


class Strict(BaseModel):
    """A document, or a part of one, without other keys than the known ones."""

    model_config = ConfigDict(extra="forbid", strict=True)


class InferenceError(BaseModel):
    """What is wrong."""

    error: str


Document = TypeVar("Document", bound=Strict)


def parsed(kind: type[Document], document: dict[str, Any]) -> Document:
    """Returns a document by its types.

    Raises:
        BadInputError: It is something else.
    """
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        raise BadInputError((_problem(document, item) for item in islice(found, MAX_LISTED)), len(found)) from None


def _problem(document: dict[str, Any], item: Any) -> Problem:
    place, value, message = list(item["loc"]), item["input"], item["msg"]
    if item["type"] in EXPECTED:
        message = f"Expected {EXPECTED[item['type']]}, not {JSON_NAMES.get(type(value), 'this')}"
    elif item["type"] == "extra_forbidden":
        message = f"There is no key {shorten(place[-1])!r} here"
    elif item["type"] == "missing":
        message = "This is required"
    if place[0] == "inputs" and len(place) > 2:  # a tensor goes by its name, as in all other messages
        name = document["inputs"][place[1]].get("name")
        place[1] = name if isinstance(name, str) else place[1]
    return Problem(pointer(*place), f"{message}.")


def wrong(place: tuple[str | int, ...], message: str) -> BadInputError:
    """Returns the error of one thing at one place of a document."""
    return BadInputError([Problem(pointer(*place), message)])


def moved(error: BadInputError, move: Callable[[str], str]) -> BadInputError:
    """Returns an error with other pointers."""
    problems = (Problem(move(item.pointer), item.message) for item in error.problems)
    return BadInputError(problems, error.total, more=error.more)


def is_inference_path(path: str) -> bool:
    """Returns whether a path is one of the Open Inference Protocol, whether or not there is anything at it."""
    return path == "/v2" or path.startswith("/v2/")


def error_response(problem: ProblemDetails) -> Response:
    """Returns the answer to an error at such a path. Bad input is 400 there, as in the protocol's own description."""
    text = problem.detail
    if len(problem.errors) > 1:
        said = [f"{each.pointer}: {each.message}".removeprefix(": ") for each in problem.errors[:MOST_SAID]]
        more = len(problem.errors) - len(said)
        text = " ".join([*said, f"And {more} more."] if more else said)
    bad_input = problem.status == HTTPStatus.UNPROCESSABLE_ENTITY
    return Response(
        orjson.dumps({"error": text}),
        status_code=HTTPStatus.BAD_REQUEST if bad_input else problem.status,
        headers=dict(problem.headers),
        media_type="application/json",
    )
