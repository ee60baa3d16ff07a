"""Bytes of requests: budgets for all that are in flight, reading bodies within time and size, compression.

A large answer is encoded whole before its status is sent, so what goes wrong is known then. Its memory counts until the
client has taken it. Should it go wrong afterwards, the connection ends before the announced length. Bodies and answers
may be compressed, with gzip or deflate; the bounds hold before and after.

What one request may take of the memory: its body (`max_body_bytes`, and as much again before decompression), its
columns (8 bytes a cell, and the texts of categories), and the answer. `tables.table_codec` bounds what they unpack to.
"""

from __future__ import annotations

import asyncio
import threading
import zlib
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING

from starlette.responses import Response

from murho.service.errors import (
    ClientGoneError,
    DeadlineError,
    MediaTypeError,
    QueueFullError,
    SlowRequestError,
    TooLargeError,
    wrong,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.types import Receive, Scope, Send

    from murho.service.settings import Settings

SMALL_BYTES = 2**16
"""A request that takes no more is refused only where the whole budget is taken; rows and answers aren't counted."""
LARGE_SHARE = 0.75
"""Of the budget, which the larger ones may take."""
ORDERED_SHARE = 1 / 64
POLL_SECONDS = 0.01


class ByteBudget:
    """Shared limit of bytes for one resource: bodies with their rows, large answers, or totals.

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
        """Take so many bytes more, or give them back where they are negative; any thread may.

        Args:
            count: Bytes.
            own: Bytes that the same request holds already; a lone request is always admitted.
            share: Share of the budget that may be taken.

        Raises:
            QueueFullError: The budget is spent.
        """
        with self._lock:
            if count > 0 and self.taken > own and self.taken + count > share * self.most:
                message = f"{self._what} take {self.taken} bytes, which is all that this service has room for."
                raise QueueFullError(f"{message} Try again later.", retry_after=1)
            self.taken += count

    async def wait(self, count: int, seconds: float) -> None:
        """Take bytes once the budget has them; a lone request is always admitted.

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
class Lease:
    """Bytes that one request takes of a budget.

    Attributes:
        budget: The budget.
        size: Bytes.
    """

    budget: ByteBudget
    size: int = 0

    def resize(self, size: int) -> None:
        """Take so many bytes from now on.

        Raises:
            QueueFullError: The budget is spent; the lease is unchanged.
        """
        self.budget.take(size - self.size, self.size, share=1.0 if size <= SMALL_BYTES else LARGE_SHARE)
        self.size = size


@asynccontextmanager
async def whole_body(
    settings: Settings, budget: ByteBudget, scope: Scope, receive: Receive, most: int | None = None
) -> AsyncIterator[bytes]:
    """Yield the body of a request that isn't a prediction's, and take memory for it until the block ends.

    Args:
        settings: The limits.
        budget: The budget of requests.
        scope: The request.
        receive: Its messages.
        most: The most bytes, fewer than the settings allow; None: as many.

    Raises:
        TooLargeError, SlowRequestError, ClientGoneError, QueueFullError: See `read_body`.
    """
    lease = Lease(budget)
    most = min(most or settings.max_body_bytes, settings.max_body_bytes)
    try:
        yield await read_body(receive, scope["state"]["headers"], settings.request_timeout, most, lease)
    finally:
        lease.resize(0)


async def read_body(
    receive: Receive,
    headers: Mapping[str, str],
    seconds: float,
    most: int,
    lease: Lease,
    *,
    arrived: bool = False,
) -> bytes:
    """Return the whole body.

    Args:
        receive: The next message of the client.
        headers: The request's headers.
        seconds: The most seconds that the body may take.
        most: The most bytes.
        lease: Takes memory for it as it arrives; a small one that is there already needs none.
        arrived: Whether all of it is there already, so that no timer is needed.

    Raises:
        TooLargeError: The body is larger, as announced before it is read, or as found.
        SlowRequestError: The body takes longer.
        ClientGoneError: The client closed the connection before the end.
        QueueFullError: There is no memory for it.
    """
    announced = headers.get("content-length", "")
    too_large = f"The body is larger than {most} bytes, the most that this service takes. Send parts."
    if announced.isdecimal() and (len(announced) > 18 or int(announced) > most):
        raise TooLargeError(too_large)
    waiting, size, last = BytesIO(), 0, False
    try:
        async with nullcontext() if arrived else asyncio.timeout(seconds):
            while not last:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError("The client closed the connection before the end of its request.")
                part, last = message.get("body", b""), not message.get("more_body", False)
                size += len(part)
                if size > most:
                    raise TooLargeError(too_large)
                if last and size == len(part) <= SMALL_BYTES:
                    return bytes(part)
                lease.resize(size)
                waiting.write(part)
    except TimeoutError:
        raise SlowRequestError(f"The body didn't arrive within {seconds:.3g} seconds.") from None
    return waiting.getvalue()  # no copy


SENT_BYTES = 2**18
VARY = {"vary": "accept, accept-encoding"}


class LargeResponse(Response):
    """An answer that takes memory until it is sent.

    Args:
        content: Its body.
        lease: The memory.
        headers: Its headers.
        media_type: Of the body.
    """

    def __init__(self, content: bytes, lease: Lease, headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(content, headers=headers, media_type=media_type)
        self._lease = lease

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        """Send the answer."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for start in range(0, len(self.body), SENT_BYTES):
                part = self.body[start : start + SENT_BYTES]
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body"})
        finally:
            self._lease.resize(0)


LEAST_BYTES = 1024
"""Smaller answers aren't worth it."""
LEVEL = 1
"""The fastest: numbers as text shrink to a third at once, and hardly further."""
GZIP = 16 + zlib.MAX_WBITS
WINDOWS = {"gzip": GZIP, "x-gzip": GZIP, "deflate": zlib.MAX_WBITS}
"""What zlib calls each coding; `deflate` is a zlib stream (RFC 9110, section 8.4.1.2)."""
PLAIN = frozenset({"", "identity"})


def decompress(body: bytes, coding: str, most: int) -> bytes:
    """Return a body without its `Content-Encoding`.

    Args:
        body: The body as sent.
        coding: The `Content-Encoding` header.
        most: The most bytes of the result.

    Raises:
        MediaTypeError: The encoding is none of gzip, deflate and identity.
        BadInputError: The body isn't whole data of this encoding.
        TooLargeError: The result is larger than `most`.
    """
    coding = coding.strip().lower()
    if coding in PLAIN:
        return body
    if coding not in WINDOWS:
        raise MediaTypeError(f"Content-Encoding {coding[:80]!r} isn't read here. Send gzip, or no compression.")
    reader, name = zlib.decompressobj(WINDOWS[coding]), coding.removeprefix("x-")
    try:
        found = reader.decompress(body, most + 1)
    except zlib.error as error:
        raise wrong("", f"The body isn't {name} data: {error}.") from None
    if len(found) > most:
        raise TooLargeError(f"The body takes more than {most} bytes, the most that this service reads. Send parts.")
    if not reader.eof or reader.unused_data:
        raise wrong("", f"The {name} data in the body are cut, or go on after their end.")
    return found


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
    """Return what a body looks like and how to send it; None if it looks like nothing known."""
    for start, advice in FORMS.items():
        if body.startswith(start):
            return f"It looks like {advice}."
    return None


def parse_weights(header: str) -> list[tuple[str, float]]:
    """Return what a header of the kind of `Accept` lists, in lower case, each with its weight (RFC 9110, 12.4.2)."""
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
def choose_coding(accept_encoding: str) -> str | None:
    """Return gzip, or else deflate, if an `Accept-Encoding` header names it with a weight above 0; else None."""
    accepted = {name.removeprefix("x-") for name, quality in parse_weights(accept_encoding) if quality > 0.0}
    return next((coding for coding in ("gzip", "deflate") if coding in accepted), None)


def compress(body: bytes, coding: str = "gzip") -> bytes | None:
    """Return a body in a coding, gzip or deflate; None if it is too small to be worth it."""
    if len(body) < LEAST_BYTES:
        return None
    # zlib.compress would keep what it has made twice, at the end.
    writer, sink = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOWS[coding]), BytesIO()
    sink.writelines(writer.compress(body[start : start + SENT_BYTES]) for start in range(0, len(body), SENT_BYTES))
    sink.write(writer.flush())
    return sink.getvalue()
