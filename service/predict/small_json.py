"""JSON documents that are small enough to be parsed at once, as in the protocols beside `POST /predict`."""

from __future__ import annotations

import re
from typing import Any

import orjson

from murho.model.errors import Problem
from murho.service.errors import BadInputError, TooLargeError
from murho.service.predict.cells import JSON_NAMES

__all__ = ["load_json"]

MOST_JSON_BYTES = 2**21
"""The parser holds the interpreter's lock until it is through: 10 to 50 ms for numbers of this size."""
MOST_CONTAINERS = 100_000
"""Lists and objects, which take the parser ten times longer than numbers, and the collector of garbage longer yet."""
STRINGS_AND_NAN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|NaN', re.DOTALL)
"""A string that isn't closed goes on to the end, so that the search never begins again within it."""


def load_json(text: bytes) -> dict[str, Any]:
    """Returns the object that is JSON; NaN, which some clients write for a missing value, is null.

    Raises:
        BadInputError: It is no JSON object.
        TooLargeError: It is too long.
    """
    if len(text) > MOST_JSON_BYTES:
        raise TooLargeError(
            f"The JSON of the request has {len(text)} bytes; at most {MOST_JSON_BYTES} are read. Send large tables as "
            "binary tensors to /v2, or as Arrow or CSV elsewhere."
        )
    if (count := text.count(b"[") + text.count(b"{")) > MOST_CONTAINERS:
        raise TooLargeError(
            f"The JSON of the request has {count} lists and objects; at most {MOST_CONTAINERS} are read. Send large "
            "tables by columns, as binary tensors to /v2, or as Arrow or CSV elsewhere."
        )
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        try:
            if not error.doc.startswith("NaN", error.pos):
                raise
            document = orjson.loads(STRINGS_AND_NAN.sub(_null_for_nan, text))
        except orjson.JSONDecodeError:
            raise BadInputError([Problem("", f"The request isn't valid JSON in UTF-8: {error}")]) from None
    if not isinstance(document, dict):
        raise BadInputError([Problem("", f"Expected a JSON object, not {JSON_NAMES.get(type(document), 'this')}.")])
    return document


def _null_for_nan(found: re.Match[bytes]) -> bytes:
    return b"null" if found[0] == b"NaN" else found[0]
