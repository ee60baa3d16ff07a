"""Bytes that are written once and then read: large ones in a temporary file, mapped into memory where they are read.

A service holds large bodies and large answers so. Their pages belong to the file, and the system takes them back when
it needs memory. Where no file can be written, they stay in memory.

A large answer is encoded into a spool piece by piece, and sent from there once all of it is known. So it is never in
memory as a whole beside its arrays, a client that takes it slowly holds no memory, and what goes wrong is known before
the status is sent. Should it go wrong afterwards, the connection ends before the announced length. Bodies and answers
may be compressed, with gzip or deflate; the bounds hold before and after.
"""

from __future__ import annotations

import asyncio
import mmap
import tempfile
import threading
import zlib
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import structlog
from starlette.responses import Response

from murho.model.errors import Problem
from murho.service.errors import BadInputError, MediaTypeError, QueueFullError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from io import RawIOBase
    from typing import Self

    from starlette.types import Receive, Scope, Send

    from murho.service.predict.answers import Encoded

__all__ = [
    "IN_MEMORY_BYTES",
    "WRITTEN_BYTES",
    "Spool",
    "SpoolRoom",
    "SpooledResponse",
    "accepted_coding",
    "compressed",
    "compressed_pieces",
    "decompressed",
    "decompressed_pieces",
    "is_plain",
    "response_of",
    "sent_pieces",
    "weighted",
]

IN_MEMORY_BYTES = 2**20
"""What is no larger stays in memory, without a file."""
WRITTEN_BYTES = 2**20
"""Of one write to the file."""
SENT_BYTES = 2**18
VARY = {"vary": "accept, accept-encoding"}


class SpoolRoom:
    """How many bytes the spools of one service may hold together, in files and in memory.

    Args:
        most: Bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._lock = threading.Lock()
        self._told = False

    @property
    def taken(self) -> int:
        """Bytes in spools now."""
        return self._taken

    def take(self, count: int, own: int) -> None:
        """Takes room for so many bytes more for a spool that has `own` of them already.

        Raises:
            QueueFullError: There is none. What is alone has room.
        """
        with self._lock:
            if self._taken + count > self._most and self._taken > own:
                raise QueueFullError(
                    f"Large bodies and answers in flight take {self._taken} bytes, which is all that this service has "
                    "room for. Try again later.",
                    retry_after=5,
                )
            self._taken += count

    def give_back(self, count: int) -> None:
        """Gives room back."""
        with self._lock:
            self._taken -= count

    def complain(self, error: OSError) -> None:
        """Says once in the log that files can't be written."""
        if not self._told:
            self._told = True
            advice = "set TMPDIR to a directory with room"
            structlog.get_logger("murho.spool").warning(
                "no temporary file for a large body: it stays in memory", reason=str(error), advice=advice
            )


class Spool:
    """Some bytes: written from front to end, then read. While it is entered, it takes room.

    Args:
        room: Shared by all of a service.
    """

    def __init__(self, room: SpoolRoom) -> None:
        self.size = 0
        self._room = room
        self._in_memory = bytearray()
        self._file: RawIOBase | None = None
        self._stays = False  # in memory, because no file can be written
        self._in_file = 0
        self._map: mmap.mmap | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, data: bytes | memoryview) -> None:
        """Appends bytes. It may wait for the disk.

        Raises:
            QueueFullError: There is no room.
        """
        self._room.take(len(data), self.size)
        self.size += len(data)
        self._in_memory += data
        if self.size > IN_MEMORY_BYTES and len(self._in_memory) >= WRITTEN_BYTES:
            self._flush()

    def view(self) -> memoryview:
        """Returns all that was written. Nothing is written any more afterwards."""
        if self._file is not None:
            self._flush()
        if self._file is None:
            return memoryview(self._in_memory)
        if self._map is None:
            self._map = mmap.mmap(self._file.fileno(), self.size, access=mmap.ACCESS_READ)
        return memoryview(self._map)

    def whole(self) -> bytes:
        """Returns all that was written, copied in pieces: a copy holds the interpreter's lock, and joining doesn't."""
        view = self.view()
        return b"".join([bytes(view[start : start + WRITTEN_BYTES]) for start in range(0, self.size, WRITTEN_BYTES)])

    @property
    def in_file(self) -> bool:
        """Whether reading it may wait for the disk."""
        return self._file is not None

    def forget_pages(self) -> None:
        """Lets go of the pages that were read; they are read from the file again when they are needed."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Gives the room back. Views stay good until they are let go of."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._room.give_back(self.size)
        self.size = 0
        # Not closed: that would fail while somebody still holds a view. Its pages go with the last of them.
        self._map = None
        self._in_memory = bytearray()

    def _flush(self) -> None:
        """Moves what is in memory to the file; the whole back into memory if the file can't take it."""
        count = len(self._in_memory)
        if self._stays or not count:
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="murho-", buffering=0)  # noqa: SIM115 - closed in `close`
            _write_all(self._file, self._in_memory)
        except OSError as error:
            self._room.complain(error)
            self._move_back()
            return
        self._in_file += count
        self._in_memory = bytearray()

    def _move_back(self) -> None:
        self._stays = True
        if self._file is None:
            return
        self._file.seek(0)
        self._in_memory = bytearray(self._file.read(self._in_file)) + self._in_memory
        self._file.close()
        self._file = None


def _write_all(file: RawIOBase, data: bytearray) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def response_of(encoded: Encoded, coding: str | None, room: SpoolRoom | None) -> Response:
    """Returns an answer; a large one is collected in a spool, in a thread.

    Args:
        encoded: Its body in pieces, its media type and its headers.
        coding: gzip or deflate, to be compressed; None: as it is.
        room: For a large answer; None for a small one, which stays in memory.

    Raises:
        QueueFullError: There is no room.
    """
    pieces, media_type = encoded.pieces, encoded.media_type
    headers = {**encoded.headers, **VARY}
    if room is None:
        body = b"".join(pieces)
        if coding is not None and (small := compressed(body, coding)) is not None:
            body, headers["content-encoding"] = small, coding
        return Response(body, headers=headers, media_type=media_type)
    if coding is not None:
        pieces, headers["content-encoding"] = compressed_pieces(pieces, coding), coding
    spool = Spool(room)
    try:
        for piece in pieces:
            spool.write(piece)
    except BaseException:
        spool.close()
        raise
    return SpooledResponse(spool, headers, media_type)


class SpooledResponse(Response):
    """An answer with the bytes of a spool, which it closes when it is sent.

    Args:
        spool: Has all but the ends.
        headers: Its headers.
        media_type: Of the body.
        head: What comes before the spool.
        tail: What comes after it.
    """

    def __init__(
        self, spool: Spool, headers: Mapping[str, str], media_type: str, head: bytes = b"", tail: bytes = b""
    ) -> None:
        super().__init__(headers={**headers, **VARY}, media_type=media_type)
        self._head, self._spool, self._tail = head, spool, tail
        self.headers["content-length"] = str(len(head) + spool.size + len(tail))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        """Sends the answer."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            pieces = chain([self._head] if self._head else [], sent_pieces(self._spool))
            while piece := await asyncio.to_thread(next, pieces, b"") if self._spool.in_file else next(pieces, b""):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": self._tail, "more_body": False})
        finally:
            self._spool.close()


def sent_pieces(spool: Spool) -> Iterator[bytes]:
    """Yields what a spool has, without keeping it in memory."""
    view = spool.view()
    for start in range(0, len(view), SENT_BYTES):
        yield bytes(view[start : start + SENT_BYTES])
        spool.forget_pages()


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


def weighted(header: str) -> list[tuple[str, float]]:
    """Returns what a header of the kind of `Accept` lists, in lower case, each with its weight (RFC 9110, 12.4.2)."""
    listed = []
    for part in filter(str.strip, header.split(",")):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for key, _, value in (parameter.partition("=") for parameter in parameters):
            if key.strip() == "q":
                try:
                    quality = min(1.0, max(0.0, float(value)))
                except ValueError:
                    quality = 0.0
        listed.append((name, quality))
    return listed


@lru_cache(256)  # most clients send the same header with every request
def accepted_coding(accept_encoding: str) -> str | None:
    """Returns gzip, or else deflate, if an `Accept-Encoding` header names it with a weight above 0; else None."""
    accepted = {name.removeprefix("x-") for name, quality in weighted(accept_encoding) if quality > 0.0}
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
