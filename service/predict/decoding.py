"""Where bodies are decoded and answers encoded: small ones at once, large ones in threads of their own.

The event loop answers everybody, so nothing in it may take more than some milliseconds. A thread alone doesn't help
with work that holds the interpreter's lock, so the codecs do large work in pieces, and few threads do it: each one that
wants the lock is one more for the event loop to wait for.

What one request may take of the memory: its body (`max_body_bytes`, and as much again before decompression), its
columns (8 bytes a cell, and the texts of categories), and the answer. `tables.blocks` bounds what bodies unpack
to. Of large CSV and Arrow bodies only some blocks of rows are in memory (`service.tables.large_tables`).
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from murho.service.errors import TooLargeError
from murho.service.predict.compression import decompressed, is_plain
from murho.service.predict.formats import PARQUET

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from murho.model.predictive.prediction import PredictOptions
    from murho.model.tables.schema import Schema
    from murho.service.predict.codec import Asked, Codec
    from murho.service.settings import Settings

__all__ = ["LARGE_ANSWER_VALUES", "SMALL_BODY_BYTES", "Coding", "Decoder", "answer_values", "require_place"]

Result = TypeVar("Result")
AskedFor = TypeVar("AskedFor", bound="Asked")

SMALL_BODY_BYTES = 2**14
"""The worst body of this size that we know, empty objects, takes 9 ms to refuse; a good one takes less than 1 ms."""
LARGE_ANSWER_VALUES = 10_000
"""Encoding that many takes 1 ms, and to compress them another 4 ms."""
THREADS = 2
CLASS_VALUES = 3
"""Values of a row and class besides the percentiles: probability, spread, and whether it is in the set."""
MOST_CLASS_VALUES = 100_000_000
"""Of one answer: as many as a million rows with a hundred percentiles of a number have."""


@dataclass(frozen=True, slots=True)
class Coding:
    """What a request says about its body.

    Attributes:
        reader: The codec of its media type.
        encoding: Its `Content-Encoding`; empty for none.
        query: The query parameters.
    """

    reader: Codec
    encoding: str
    query: Mapping[str, str]


class Decoder:
    """Decodes the bodies of requests within the limits of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="codec")

    async def decode_request(self, body: bytes, coding: Coding, schema: Schema) -> Asked:
        """Returns the rows and the options of a request.

        Args:
            body: The body as it was sent.
            coding: What the request says about it.
            schema: The features of the model.

        Raises:
            BadInputError: A row or an option is wrong.
            TooLargeError: The request is above a limit.
            MediaTypeError: The body is compressed in a way that isn't read.
        """
        read = partial(coding.reader.decode, query=coding.query, schema=schema, settings=self._settings)
        return await self.decode(body, coding.encoding, schema, read, unpacks=coding.reader.unpacks)

    async def decode(
        self, body: bytes, encoding: str, schema: Schema, read: Callable[[bytes], AskedFor], *, unpacks: bool = False
    ) -> AskedFor:
        """Returns the rows and the options of a request, whatever its protocol.

        Args:
            body: The body as it was sent.
            encoding: Its `Content-Encoding`; empty for none.
            schema: The features and the target of the model.
            read: Reads the body once it isn't compressed any more.
            unpacks: See `Codec.unpacks`.

        Raises:
            BadInputError: A row or an option is wrong.
            TooLargeError: The request is above a limit.
            MediaTypeError: The body is compressed in a way that isn't read.
        """
        large = len(body) > SMALL_BODY_BYTES or unpacks or not is_plain(encoding)
        return await self.in_thread_if(large, partial(self._decode, body, encoding, schema, read))

    async def in_thread_if(self, large: bool, work: Callable[[], Result]) -> Result:
        """Runs large work in a thread, so that other requests go on meanwhile; other work directly.

        Work that nobody waits for any longer is dropped if it hasn't begun.
        """
        if not large:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Ends the threads once they have done what they do, and the process that unpacks Parquet files."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        PARQUET.close()

    def _decode(self, body: bytes, encoding: str, schema: Schema, read: Callable[[bytes], AskedFor]) -> AskedFor:
        asked = read(decompressed(body, encoding, self._settings.max_body_bytes))
        require_place(asked.inputs.count, asked.options, schema, self._settings)
        return asked


def answer_values(rows: int, options: PredictOptions, schema: Schema) -> int:
    """Returns about how many values the answer for so many rows has."""
    of_class = 8 + len(options.percentiles) + len(options.thresholds) + options.samples * options.draws
    return rows * len(schema.target.classes or (None,)) * of_class


def require_place(rows: int, options: PredictOptions, schema: Schema, settings: Settings) -> None:
    """Checks that the answer for so many rows isn't too large.

    Raises:
        TooLargeError: It is.
    """
    classes = schema.target.classes
    values = rows * options.samples * len(classes or (None,))
    if options.draws and values > settings.max_draw_values:
        of_classes = "" if classes is None else f" for {len(classes)} classes"
        raise TooLargeError(
            f"The draws of {rows} rows and {options.samples} samples{of_classes} are {values} numbers; this "
            f"service lists at most {settings.max_draw_values}. Send fewer rows, or ask for fewer samples."
        )
    if classes is not None:
        _require_place_of_classes(rows, len(classes), len(options.percentiles))


def _require_place_of_classes(rows: int, classes: int, levels: int) -> None:
    """Checks that the answer of a classifier, which has a number for each class and level, isn't too large.

    Raises:
        TooLargeError: It is.
    """
    values = rows * classes * (CLASS_VALUES + levels)
    if values > MOST_CLASS_VALUES:
        raise TooLargeError(
            f"The answer for {rows} rows, {classes} classes and {levels} percentile levels has {values} numbers; "
            f"{MOST_CLASS_VALUES} are the most. Send fewer rows, or ask for fewer percentiles."
        )
