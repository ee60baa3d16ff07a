"""Writing JSON in pieces: the encoder holds the interpreter's lock, so no call of it gets a large array."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from murho.service.predict.class_names import ClassNames

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["encode_document"]

LISTED = (np.ndarray, ClassNames)
PIECE_VALUES = 4096
"""Numbers encoded at once, in about half a millisecond."""
JOIN_BYTES = 2**18
"""Of a piece, at least, but for the last one."""


def encode_document(document: Mapping[str, Any]) -> Iterator[bytes]:
    """Yields an object as JSON in UTF-8, in pieces; arrays and `ClassNames` in it, at any depth of objects, are lists.

    It is what ``orjson.dumps`` writes, byte for byte.
    """
    if _size(document) <= PIECE_VALUES:
        yield orjson.dumps(document, _listed, orjson.OPT_SERIALIZE_NUMPY)
        return
    parts: list[bytes] = []
    size = 0
    for part in _object(document):
        parts.append(part)
        size += len(part)
        if size > JOIN_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join(parts)


def _listed(value: object) -> list[Any]:
    """Returns what the encoder has no text for as a list."""
    if isinstance(value, ClassNames):
        return value[:]
    raise TypeError(f"{type(value).__name__} can't be written")


def _size(document: Mapping[str, Any]) -> int:
    """Returns the number of values in the arrays of an object, at any depth."""
    size = 0
    for value in document.values():
        if isinstance(value, dict):
            size += _size(value)
        elif isinstance(value, LISTED):
            size += value.size
    return size


def _object(document: Mapping[str, Any]) -> Iterator[bytes]:
    before = b"{"
    for name, value in document.items():
        yield before + orjson.dumps(name) + b":"
        before = b","
        if isinstance(value, dict):
            yield from _object(value)
        elif isinstance(value, LISTED):
            yield from _array(value)
        else:
            yield orjson.dumps(value)
    yield b"{}" if before == b"{" else b"}"


def _array(values: np.ndarray[Any, Any] | ClassNames) -> Iterator[bytes]:
    rows = max(1, PIECE_VALUES * len(values) // max(1, values.size))
    before = b"["
    for start in range(0, len(values), rows):
        yield before + orjson.dumps(values[start : start + rows], option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
        before = b","
        time.sleep(0)  # whoever waits for the lock gets it now
    yield b"[]" if before == b"[" else b"]"
