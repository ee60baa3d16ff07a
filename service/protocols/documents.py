"""The documents of protocols, read strictly by their types; and what is wrong with them, as each protocol says it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from murho.model.errors import Problem
from murho.service.errors import BadInputError
from murho.service.predict.problems import MAX_LISTED, pointer, shorten
from murho.service.predict.rows import JSON_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["InferenceError", "Strict", "moved", "parsed", "wrong"]

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
