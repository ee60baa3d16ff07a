"""gzip in both directions, bounded before and after."""

from __future__ import annotations

import zlib

from murho.model.errors import Problem
from murho.service.errors import BadInputError, MediaTypeError, TooLargeError

__all__ = ["accepts_gzip", "decompressed", "gzipped"]

LEAST_BYTES = 1024
"""Smaller answers aren't worth it."""
LEVEL = 1
"""The fastest: numbers as text shrink to a third at once, and hardly further."""
GZIP = 16 + zlib.MAX_WBITS


def decompressed(body: bytes, coding: str, most: int) -> bytes:
    """Returns a body without its `Content-Encoding`.

    Args:
        body: The body as sent.
        coding: The `Content-Encoding` header.
        most: The most bytes of the result.

    Raises:
        MediaTypeError: The encoding is neither gzip nor identity.
        BadInputError: The body isn't whole gzip data.
        TooLargeError: The result is larger than `most`.
    """
    coding = coding.strip().lower()
    if coding in {"", "identity"}:
        return body
    if coding not in {"gzip", "x-gzip"}:
        raise MediaTypeError(f"Content-Encoding {coding[:80]!r} isn't read here. Send gzip, or no compression.")
    reader = zlib.decompressobj(GZIP)
    try:
        plain = reader.decompress(body, most + 1)
    except zlib.error as error:
        raise BadInputError([Problem("", f"The body isn't gzip data: {error}.")]) from None
    if len(plain) > most:
        raise TooLargeError(f"The body takes more than {most} bytes, the most that this service reads. Send parts.")
    if not reader.eof or reader.unused_data:
        raise BadInputError([Problem("", "The gzip data in the body are cut, or go on after their end.")])
    return plain


def accepts_gzip(accept_encoding: str) -> bool:
    """Returns whether an `Accept-Encoding` header names gzip with a weight above 0."""
    for part in accept_encoding.lower().split(","):
        name, *parameters = (piece.strip().replace(" ", "") for piece in part.split(";"))
        if name in {"gzip", "x-gzip"}:
            return not any(parameter in {"q=0", "q=0.0", "q=0.00", "q=0.000"} for parameter in parameters)
    return False


def gzipped(body: bytes) -> bytes | None:
    """Returns the body as gzip data; None if it is too small to be worth it."""
    if len(body) < LEAST_BYTES:
        return None
    writer = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    return writer.compress(body) + writer.flush()
