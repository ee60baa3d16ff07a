"""gzip and deflate in both directions, bounded before and after."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING

from murho.model.errors import Problem
from murho.service.errors import BadInputError, MediaTypeError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "accepted_coding",
    "compressed",
    "compressed_pieces",
    "decompressed",
    "decompressed_pieces",
    "is_plain",
]

PIECE_BYTES = 2**20
LEAST_BYTES = 1024
"""Smaller answers aren't worth it."""
LEVEL = 1
"""The fastest: numbers as text shrink to a third at once, and hardly further."""
GZIP = 16 + zlib.MAX_WBITS
WINDOWS = {"gzip": GZIP, "x-gzip": GZIP, "deflate": zlib.MAX_WBITS}
"""What zlib calls each coding; `deflate` is a zlib stream (RFC 9110, section 8.4.1.2)."""


def decompressed(body: bytes, coding: str, most: int) -> bytes:
    """Returns a body without its `Content-Encoding`.

    Args:
        body: The body as sent.
        coding: The `Content-Encoding` header.
        most: The most bytes of the result.

    Raises:
        MediaTypeError: The encoding is none of gzip, deflate and identity.
        BadInputError: The body isn't whole data of this encoding.
        TooLargeError: The result is larger than `most`.
    """
    if is_plain(coding):
        return body
    return b"".join(decompressed_pieces(memoryview(body), coding, most))


def is_plain(coding: str) -> bool:
    """Returns whether a `Content-Encoding` header says that the body isn't compressed."""
    return coding.strip().lower() in {"", "identity"}


def decompressed_pieces(body: memoryview, coding: str, most: int) -> Iterator[bytes]:
    """Yields a compressed body without its `Content-Encoding`, at most `PIECE_BYTES` at a time; see `decompressed`."""
    coding = coding.strip().lower()
    if coding not in WINDOWS:
        raise MediaTypeError(f"Content-Encoding {coding[:80]!r} isn't read here. Send gzip, or no compression.")
    reader = zlib.decompressobj(WINDOWS[coding])
    name = coding.removeprefix("x-")
    size = 0
    try:
        for piece in _pieces(reader, body):
            size += len(piece)
            if size > most:
                raise TooLargeError(
                    f"The body takes more than {most} bytes, the most that this service reads. Send parts."
                )
            yield piece
    except zlib.error as error:
        raise BadInputError([Problem("", f"The body isn't {name} data: {error}.")]) from None
    if not reader.eof or reader.unused_data:
        raise BadInputError([Problem("", f"The {name} data in the body are cut, or go on after their end.")])


def _pieces(reader: zlib._Decompress, body: memoryview) -> Iterator[bytes]:
    for start in range(0, len(body), PIECE_BYTES):
        data: bytes | memoryview = body[start : start + PIECE_BYTES]
        while piece := reader.decompress(data, PIECE_BYTES):
            yield piece
            data = reader.unconsumed_tail
        if reader.unused_data:
            return


@lru_cache(256)  # most clients send the same header with every request
def accepted_coding(accept_encoding: str) -> str | None:
    """Returns gzip, or else deflate, if an `Accept-Encoding` header names it with a weight above 0; else None."""
    accepted = set()
    for part in accept_encoding.lower().split(","):
        name, *parameters = (piece.strip().replace(" ", "") for piece in part.split(";"))
        if not any(parameter in {"q=0", "q=0.0", "q=0.00", "q=0.000"} for parameter in parameters):
            accepted.add(name.removeprefix("x-"))
    return next((coding for coding in ("gzip", "deflate") if coding in accepted), None)


def compressed(body: bytes, coding: str = "gzip") -> bytes | None:
    """Returns the body in a coding, gzip or deflate; None if it is too small to be worth it."""
    if len(body) < LEAST_BYTES:
        return None
    return b"".join(compressed_pieces([body], coding))


def compressed_pieces(pieces: Iterable[bytes], coding: str) -> Iterator[bytes]:
    """Yields a body in a coding, gzip or deflate."""
    writer = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOWS[coding])
    for piece in pieces:
        yield writer.compress(piece)
    yield writer.flush()
