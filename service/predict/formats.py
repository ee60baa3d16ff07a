"""The formats of bodies: which codec reads a request, which writes its answer, and in which thread they do it.

`Content-Type` picks the reader. `Accept` picks the writer; without it, or with `*/*`, the answer has the format of the
request.

The event loop answers everybody, so nothing in it may take more than some milliseconds. A thread alone doesn't help
with work that holds the interpreter's lock, so the codecs do large work in pieces, and few threads do it: each one that
wants the lock is one more for the event loop to wait for.

What one request may take of the memory: its body (`max_body_bytes`, and as much again before decompression), its
columns (8 bytes a cell, and the texts of categories), and the answer. `tables.blocks` bounds what bodies unpack
to. Of large CSV and Arrow bodies only some blocks of rows are in memory (`tables.large_tables`).
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from murho.service.errors import MediaTypeError, NotAcceptableError
from murho.service.predict.answers import Terms, require_place
from murho.service.predict.json_requests import JSONCodec
from murho.service.predict.spool import decompressed, is_plain, weighted
from murho.service.tables.arrow_tables import ArrowCodec, ParquetCodec
from murho.service.tables.csv_tables import CSVCodec
from murho.service.tables.npy_arrays import NpyCodec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from murho.service.predict.answers import Asked, Codec

__all__ = [
    "CODECS",
    "LARGE_ANSWER_VALUES",
    "MEDIA_TYPES",
    "PARQUET",
    "Decoder",
    "codecs_of",
    "reader_of",
    "writer_of",
]

Result = TypeVar("Result")

PARQUET = ParquetCodec()
CODECS: tuple[Codec, ...] = (JSONCodec(), CSVCodec(), ArrowCodec(), PARQUET, NpyCodec())
MEDIA_TYPES = tuple(codec.media_type for codec in CODECS)

SMALL_BODY_BYTES = 2**14
"""The worst body of this size that we know, empty objects, takes 9 ms to refuse; a good one takes less than 1 ms."""
LARGE_ANSWER_VALUES = 10_000
"""Encoding that many takes 1 ms, and to compress them another 4 ms."""
THREADS = 2


def codecs_of(headers: Mapping[str, str]) -> tuple[Codec, Codec]:
    """Returns the codecs of a request with these headers and of its answer; raises what the next two raise."""
    reader = reader_of(headers.get("content-type", ""))
    return reader, writer_of(headers.get("accept", ""), reader)


@lru_cache(256)  # most clients send the same header with every request
def reader_of(content_type: str) -> Codec:
    """Returns the codec that reads a body of this `Content-Type`; JSON for none.

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
    """Returns the codec of the answer.

    Args:
        accept: The `Accept` header: media ranges with weights, the heaviest wins (RFC 9110, section 12.5.1).
        reader: The codec of the request, which wins ties.

    Raises:
        NotAcceptableError: No codec writes what is accepted.
    """
    ranges = weighted(accept) or [("*/*", 1.0)]
    best = max((reader, *CODECS), key=lambda codec: _quality(codec.media_type, ranges))  # the first of equal ones
    if not _quality(best.media_type, ranges):
        raise NotAcceptableError(f"{accept[:80]!r} isn't written here. Accept one of {', '.join(MEDIA_TYPES)}.")
    return best


def _quality(media_type: str, ranges: list[tuple[str, float]]) -> float:
    """Returns the weight of a media type by the most specific range that fits it; 0 if none does."""
    family = media_type.partition("/")[0]
    for wanted in (media_type, f"{family}/*", "*/*"):
        for media_range, quality in ranges:
            if media_range == wanted:
                return quality
    return 0.0


class Decoder:
    """Decodes the bodies of requests, large ones in threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="codec")

    async def decode(self, body: bytes, encoding: str, reader: Codec, terms: Terms) -> Asked:
        """Returns the rows and the options of a request.

        Args:
            body: The body as it was sent.
            encoding: Its `Content-Encoding`; empty for none.
            reader: The codec of its media type.
            terms: How it is read.

        Raises:
            BadInputError: A row or an option is wrong.
            TooLargeError: The request is above a limit.
            MediaTypeError: The body is compressed in a way that isn't read.
        """
        if not reader.unpacks and len(body) <= SMALL_BODY_BYTES and (not encoding or is_plain(encoding)):
            asked = reader.decode(body, terms)
        else:
            most = terms.settings.max_body_bytes
            asked = await self.in_thread(lambda: reader.decode(decompressed(body, encoding, most), terms))
        require_place(asked.inputs.count, asked.options, terms.schema, terms.settings)
        return asked

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Runs large work in a thread, so that other requests go on meanwhile.

        Work that nobody waits for any longer is dropped if it hasn't begun.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Ends the threads once they have done what they do, and the process that unpacks Parquet files."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        PARQUET.close()
