"""The problems of one request: collected, put in the order of the request, cut to a readable number.

A request can be wrong in a million places; listing them all would cost more than its answer.
"""

from __future__ import annotations

from itertools import islice
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from murho.model.errors import Problem
from murho.service.errors import BadInputError, wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "JSON_NAMES",
    "MAX_LISTED",
    "InferenceError",
    "Many",
    "Problems",
    "Strict",
    "foreign_form",
    "parsed",
    "pointer",
    "refuse_unknown",
    "shorten",
    "wrong_at",
]

MAX_LISTED = 50
MAX_NAME = 100

JSON_NAMES: dict[type, str] = {
    NoneType: "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}

FORMS: dict[bytes, str] = {
    b"\x1f\x8b": "gzip data: send the header Content-Encoding: gzip with it",
    b"\x28\xb5\x2f\xfd": "Zstandard data: send it as gzip, with Content-Encoding: gzip, or as it is",
    b"PK\x03\x04": "a ZIP archive or a spreadsheet: send CSV, JSON, Arrow or Parquet",
    b"PAR1": "a Parquet file: send the header Content-Type: application/vnd.apache.parquet with it",
    b"ARROW1": "an Arrow file: send an Arrow stream (pyarrow.ipc.new_stream)",
    b"\x93NUMPY": "a NumPy array: send the header Content-Type: application/x-npy with it",
    b"\xff\xff\xff\xff": "an Arrow stream: send Content-Type: application/vnd.apache.arrow.stream",
    b"\xef\xbb\xbf": "text with a byte order mark: send UTF-8 without one",
    b"\xff\xfe": "UTF-16: send UTF-8",
    b"\xfe\xff": "UTF-16: send UTF-8",
}
"""The first bytes of bodies in another form than announced → what it is, and what to do."""


def foreign_form(body: bytes) -> str | None:
    """Returns what a body looks like and how to send it; None if it looks like nothing known."""
    for start, advice in FORMS.items():
        if body.startswith(start):
            return f"It looks like {advice}."
    head = body[:4]
    # ASCII characters in UTF-16 and UTF-32 without a byte order mark have zeros between them.
    if len(head) == 4 and b"\0" in head and head.replace(b"\0", b"").isascii() and head.strip(b"\0"):
        return "It looks like UTF-16 or UTF-32: send UTF-8."
    return None


def shorten(text: str, limit: int = MAX_NAME) -> str:
    """Returns the text, cut to `limit` characters; a request can hold names of any length."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def pointer(*parts: str | int) -> str:
    """Returns the RFC 6901 JSON pointer to a place; very long names are cut.

    Example:
        >>> pointer("inputs", 3, "km/h")
        '/inputs/3/km~1h'
    """
    place = ""
    for part in parts:
        place += f"/{part}" if isinstance(part, int) else "/" + shorten(part).replace("~", "~0").replace("/", "~1")
    return place


def refuse_unknown(unknown: Sequence[str], message: str) -> None:
    """Checks that there are no unknown names; `message` tells what to do about them.

    Raises:
        BadInputError: There are.
    """
    if unknown:
        listed = (Problem(pointer(name), f"{shorten(name)!r}: {message}") for name in unknown[:MAX_LISTED])
        raise BadInputError(listed, len(unknown))


class Problems:
    """Collects the problems in the rows of one request.

    Each problem has a place, (row, position within the row). Problems are listed in the order of their places.

    Args:
        move: From a pointer, as it is added, to that in the body of the request.
    """

    def __init__(self, move: Callable[[str], str] = str) -> None:
        self._move = move
        self._entries: list[tuple[int, int, Problem]] = []
        self.total = 0

    @property
    def listed(self) -> int:
        """Number of problems with a message so far."""
        return len(self._entries)

    def add(self, row: int, position: int, where: str, message: str) -> None:
        """Adds one problem."""
        self.add_rows([row], position, lambda _: where, lambda _: message)

    def add_rows(
        self, rows: Sequence[int], position: int, where: Callable[[int], str], explain: Callable[[int], str]
    ) -> None:
        """Adds a problem for each of the ascending rows, with a message only for those that can be listed."""
        for row in islice(rows, MAX_LISTED):
            self._entries.append((row, position, Problem(self._move(where(row)), explain(row))))
        self.total += len(rows)

    def raise_any(self) -> None:
        """Raises the collected problems, if there are any.

        Raises:
            BadInputError: There is at least one problem.
        """
        if self._entries:
            self._entries.sort(key=lambda entry: entry[:2])
            raise BadInputError((problem for _, _, problem in self._entries[:MAX_LISTED]), self.total)


EXPECTED = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "an object"),
    "list_type": "a list",
    "string_type": "a string",
    "string_too_short": "a text of {min_length} characters or more",
    "string_too_long": "a text of at most {max_length} characters",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "none_required": "null",
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of {ge} or more",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of {le} or less",
    "too_long": "at most {max_length} entries",
    "literal_error": "{expected}",
}
"""What is expected, by the type of pydantic's error; other errors say it themselves."""


class Strict(BaseModel):
    """A document, or a part of one, without other keys than the known ones."""

    model_config = ConfigDict(extra="forbid", strict=True)


class InferenceError(BaseModel):
    """What is wrong."""

    error: str


Document = TypeVar("Document", bound=Strict)
Item = TypeVar("Item")
Many = Annotated[list[Item], Field(fail_fast=True)]
"""A list of any length: of its wrong entries one is told, as each takes a kilobyte."""


def parsed(kind: type[Document], document: Mapping[str, Any]) -> Document:
    """Returns a document by its types.

    Raises:
        BadInputError: It is something else.
    """
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False)
        problems = (_problem(kind, document, item) for item in islice(found, MAX_LISTED))
        raise BadInputError(problems, len(found)) from None


def _problem(kind: type[Strict], document: Mapping[str, Any], item: Any) -> Problem:
    place, value, message = list(item["loc"]), item["input"], item["msg"].removeprefix("Value error, ")
    if item["type"] in EXPECTED:
        limits = {name: f"{limit}".removesuffix(".0") for name, limit in item.get("ctx", {}).items()}
        message = f"Expected {EXPECTED[item['type']].format(**limits)}, not {_shown(value)}"
    elif item["type"] == "extra_forbidden":
        message = f"There is no key {shorten(place[-1])!r} here"
        message += f"; there are {', '.join(kind.model_fields)}" if len(place) == 1 else ""
    elif item["type"] == "missing":
        message = "This is required"
    if place[0] == "inputs" and len(place) > 2:  # a tensor goes by its name, as in all other messages
        name = document["inputs"][place[1]].get("name")
        place[1] = name if isinstance(name, str) else place[1]
    return Problem(pointer(*place), f"{message}.")


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f"the string {shorten(value)!r}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return shorten(repr(value))
    return f"a list of {len(value)}" if isinstance(value, list) and value else JSON_NAMES.get(type(value), "this")


def wrong_at(place: tuple[str | int, ...], message: str) -> BadInputError:
    """Returns the error of one thing at one place of a document."""
    return wrong(pointer(*place), message)
