"""Where in a TOML file an option stands, and which option a name that is none may have meant."""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["line_of", "meant"]

HEADER = re.compile(r"\s*\[\[?([^\[\]]+)\]")
KEY = re.compile(r"\s*([^=#\[\]{}]+?)\s*=")
LIKE = 0.6
"""Least similarity of a name and what may be meant by it, from 0 to 1 (`difflib`)."""


def line_of(text: str, *keys: str) -> int | None:
    """The number of the line, from 1, that gives a key, or the nearest table around it.

    Args:
        text: Valid TOML.
        keys: The key, from the outside in; ``-`` and ``_`` are the same.

    Returns:
        None if it is not found.
    """
    wanted = tuple(map(_plain, keys))
    for length in range(len(wanted), 0, -1):
        table: tuple[str, ...] = ()
        for number, line in enumerate(text.splitlines(), start=1):
            header = HEADER.match(line)
            if header:
                here = table = _parts(header[1])
            elif key := KEY.match(line):
                here = table + _parts(key[1])
            else:
                continue
            if here[:length] == wanted[:length]:
                return number
    return None


def meant(name: str, known: Iterable[str]) -> str:
    """A question after the known name that is most like another, to end a message with; else empty."""
    names = {_plain(each): each for each in known}
    close = get_close_matches(_plain(name), names, n=1, cutoff=LIKE)
    return f"; did you mean {names[close[0]]!r}?" if close else ""


def _parts(key: str) -> tuple[str, ...]:
    """The parts of a dotted key."""
    try:
        value: object = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    parts = []
    while isinstance(value, dict):
        ((part, value),) = value.items()
        parts.append(_plain(part))
    return tuple(parts)


def _plain(name: str) -> str:
    return name.replace("-", "_").lower()
