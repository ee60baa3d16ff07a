"""Reading the body of a request, within bounds of size, time and memory."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from io import BytesIO
from typing import TYPE_CHECKING

from murho.service.errors import ClientGoneError, SlowRequestError, TooLargeError
from murho.service.predict.memory import SMALL_BYTES, Share

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.types import Receive, Scope

    from murho.service.parts import Parts


@asynccontextmanager
async def whole_body(parts: Parts, scope: Scope, receive: Receive, most: int | None = None) -> AsyncIterator[bytes]:
    """Yield the body of a request that isn't a prediction's, and take memory for it until the block ends.

    Args:
        parts: The parts of the service.
        scope: The request.
        receive: Its messages.
        most: The most bytes, fewer than the settings allow; None: as many.

    Raises:
        TooLargeError, SlowRequestError, ClientGoneError, QueueFullError: See `read_body`.
    """
    settings, share = parts.settings, Share(parts.request_room)
    most = min(most or settings.max_body_bytes, settings.max_body_bytes)
    try:
        yield await read_body(receive, scope["state"]["headers"], settings.request_timeout, most, share)
    finally:
        share.resize(0)


async def read_body(
    receive: Receive,
    headers: Mapping[str, str],
    seconds: float,
    most: int,
    share: Share,
    *,
    arrived: bool = False,
) -> bytes:
    """Returns the whole body.

    Args:
        receive: The next message of the client.
        headers: The request's headers.
        seconds: The most seconds that the body may take.
        most: The most bytes.
        share: Takes memory for it as it arrives; a small one that is there already needs none.
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
                share.resize(size)
                waiting.write(part)
    except TimeoutError:
        raise SlowRequestError(f"The body didn't arrive within {seconds:.3g} seconds.") from None
    return waiting.getvalue()  # no copy
