"""Bytes of requests: budgets for all that are in flight, spools in files, compression, and freed memory given back.

A *spool* is bytes that are written once and then read: large ones in a temporary file, mapped into memory where they
are read. A service holds large bodies and large answers so. Their pages belong to the file, and the system takes them
back when it needs memory. Where no file can be written, they stay in memory.

A large answer is encoded into a spool piece by piece, and sent from there once all of it is known. So it is never in
memory as a whole beside its arrays, a client that takes it slowly holds no memory, and what goes wrong is known before
the status is sent. Should it go wrong afterwards, the connection ends before the announced length. Bodies and answers
may be compressed, with gzip or deflate; the bounds hold before and after.

What one request may take of the memory: its body (`max_body_bytes`, and as much again before decompression), its
columns (8 bytes a cell, and the texts of categories), and the answer. `tables.blocks` bounds what bodies unpack to. Of
large CSV and Arrow bodies only some blocks of rows are in memory.
"""

from __future__ import annotations

import asyncio
import gc
import mmap
import tempfile
import threading
import zlib
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow
import structlog
from starlette.responses import Response

from murho.model.runtime import give_back
from murho.service.errors import DeadlineError, MediaTypeError, QueueFullError, TooLargeError, wrong

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from io import RawIOBase

    from starlette.types import Receive, Scope, Send

    from murho.model.predictive.draw_room import DrawRoom
    from murho.service.engine.scheduler import Scheduler

SMALL_BYTES = 2**16
"""A request that takes no more is refused only where the whole budget is taken; rows and answers aren't counted."""
LARGE_SHARE = 0.75
"""Of the budget, which the larger ones may take."""
ORDERED_SHARE = 1 / 64
POLL_SECONDS = 0.01

LOOK_SECONDS = 2.0
GROWTH_BYTES = 2**26
"""More memory than after the last time is given back; it takes about 10 ms."""
QUIET_LOOKS = 5
"""After so many looks without work, draws leave the memory."""
QUIET_SHARE = 16


class Room:
    """How many bytes one kind of thing may take together: bodies with their rows, large answers, or spools.

    Attributes:
        most: Bytes.
        taken: Bytes now.

    Args:
        most: See above.
        what: What takes them, for messages.
    """

    def __init__(self, most: int, what: str = "The requests in flight") -> None:
        self.most, self.taken = most, 0
        self._what, self._lock, self._turn = what, threading.Lock(), asyncio.Lock()

    def take(self, count: int, own: int = 0, *, share: float = 1.0) -> None:
        """Takes so many bytes more, or gives them back where they are negative; any thread may.

        Args:
            count: Bytes.
            own: Bytes that the same request has already: what is alone has room.
            share: Of the room, which may be taken.

        Raises:
            QueueFullError: There is no room.
        """
        with self._lock:
            if count > 0 and self.taken > own and self.taken + count > share * self.most:
                message = f"{self._what} take {self.taken} bytes, which is all that this service has room for."
                raise QueueFullError(f"{message} Try again later.", retry_after=1)
            self.taken += count

    async def wait(self, count: int, seconds: float) -> None:
        """Takes bytes once there is room; what is alone has room.

        Raises:
            DeadlineError: There was none within the seconds.
        """
        try:
            # The larger ones come in order, and the others need not wait behind them.
            turn = self._turn if count > ORDERED_SHARE * self.most else nullcontext()
            async with asyncio.timeout(seconds), turn:
                while self.taken and self.taken + count > self.most:
                    await asyncio.sleep(POLL_SECONDS)
                self.take(count, self.taken)
        except TimeoutError:
            raise DeadlineError(
                "There was no answer in time: the request waited for other large answers. Send fewer rows, ask for "
                "fewer samples, or try again later."
            ) from None


@dataclass(slots=True)
class Share:
    """What one request takes of a room.

    Attributes:
        room: The room.
        size: Bytes.
    """

    room: Room
    size: int = 0

    def resize(self, size: int) -> None:
        """Takes so many bytes from now on.

        Raises:
            QueueFullError: There is no room; it has what it had.
        """
        self.room.take(size - self.size, self.size, share=1.0 if size <= SMALL_BYTES else LARGE_SHARE)
        self.size = size


async def keep_small(scheduler: Scheduler, draws: DrawRoom) -> None:
    """Gives freed memory back to the system for as long as the service runs; without work, that of most draws too."""
    # Arrow's own allocator keeps what its threads have freed, and can't be asked for it from another thread.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    least, passes, quiet = _resident(), -1, 0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        quiet = 0 if scheduler.admission.pending or scheduler.passes != passes else quiet + 1
        passes = scheduler.passes
        if quiet == QUIET_LOOKS:
            await asyncio.to_thread(draws.make_room, draws.most_bytes // QUIET_SHARE)
            gc.collect()  # failures of requests and their arrays hold one another
        if _resident() > least + GROWTH_BYTES or quiet == QUIET_LOOKS:
            await asyncio.to_thread(give_back)
            least = _resident()
        least = min(least, _resident())


def _resident() -> int:
    """Returns the bytes of this process in memory; 0 where that isn't known."""
    try:
        return 4096 * int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        return 0


IN_MEMORY_BYTES = 2**20
"""What is no larger stays in memory, without a file."""
WRITTEN_BYTES = 2**20
"""Of one write to the file."""
SENT_BYTES = 2**18
VARY = {"vary": "accept, accept-encoding"}


@lru_cache(1)
def _complain(reason: str) -> None:
    """Says once in the log that files can't be written."""
    structlog.get_logger("murho.spool").warning(
        "no temporary file for a large body: it stays in memory",
        reason=reason,
        advice="set TMPDIR to a directory with room",
    )


class Spool:
    """Some bytes: written from front to end, then read. While it is entered, it takes room.

    Args:
        room: Shared by all of a service.
    """

    def __init__(self, room: Room) -> None:
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

    def __del__(self) -> None:
        self.close()  # a thread may go on with it after its request has ended

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
        self._room.take(-self.size)
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
            _complain(str(error))
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
        raise wrong("", f"The body isn't {name} data: {error}.") from None
    if not reader.eof or reader.unused_data:
        raise wrong("", f"The {name} data in the body are cut, or go on after their end.")


def _pieces(reader: zlib._Decompress, body: memoryview) -> Iterator[bytes]:
    for start in range(0, len(body), PIECE_BYTES):
        data: bytes | memoryview = body[start : start + PIECE_BYTES]
        while piece := reader.decompress(data, PIECE_BYTES):
            yield piece
            data = reader.unconsumed_tail
        if reader.unused_data:
            return


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
    return None


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
