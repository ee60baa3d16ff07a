"""What is meant by words that are no JSON, such as NaN, and what to send instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import orjson

__all__ = ["json_hint"]

LONGEST = 9
MISSING = "JSON has no {word}: send null for a value that is missing."
HINTS = {
    "nan": MISSING,
    "none": MISSING,
    "undefined": MISSING,
    "n/a": MISSING,
    "infinity": "JSON has no {word}, and inputs are finite: send a number, or null for a value that is missing.",
    "inf": "JSON has no {word}, and inputs are finite: send a number, or null for a value that is missing.",
    "true": "JSON writes true, not {word}.",
    "false": "JSON writes false, not {word}.",
    "'": 'JSON has double quotes: "…", not {word}…{word}.',
}
"""What stands there, in lower case → what to do; longer words before those that they begin with."""


def json_hint(error: orjson.JSONDecodeError) -> str | None:
    """What to send instead of the word at which a parser stopped; None if it is no known one."""
    found = error.doc[error.pos : error.pos + LONGEST]
    for word, hint in HINTS.items():
        if found.lower().startswith(word):
            return hint.format(word=found[: len(word)])
    return None
