"""Reading one HTTP request: its body in time, and whether the client still waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import ClientDisconnect

from murho.service.bodies import BodyChunks
from murho.service.errors import ClientGoneError, SlowRequestError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from starlette.requests import Request

__all__ = ["read_body", "while_connected"]

Result = TypeVar("Result")


async def read_body(request: Request, seconds: float) -> bytes:
    """Returns the whole body.

    Raises:
        SlowRequestError: The body takes longer than `seconds`.
        ClientGoneError: The client closed the connection before the end.
    """
    try:
        async with asyncio.timeout(seconds):
            chunks = BodyChunks()
            async for chunk in request.stream():
                chunks.add(chunk)
            return await chunks.whole()
    except TimeoutError:
        raise SlowRequestError(f"The body didn't arrive within {seconds:.3g} seconds.") from None
    except ClientDisconnect:
        raise ClientGoneError("The client closed the connection before the end of its request.") from None


async def while_connected(request: Request, work: Coroutine[object, object, Result]) -> Result:
    """Runs work and cancels it if the client closes the connection. The body must be read before.

    Raises:
        ClientGoneError: The client closed the connection.
    """

    async def disconnection() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    answer = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnection())
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise ClientGoneError("The client closed the connection before the answer.")
    finally:
        answer.cancel()
        gone.cancel()
        # Wait until both are cancelled: cancelled work must not begin to compute a moment later.
        await asyncio.wait({answer, gone})
