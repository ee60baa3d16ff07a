"""Reading one HTTP request: its headers, and its body in time and within its limit."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING

from murho.model.errors import Problem
from murho.service.errors import BadInputError, ClientGoneError, SlowRequestError, TooLargeError
from murho.service.predict.memory import SMALL_BYTES
from murho.service.tables.spool import WRITTEN_BYTES

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

    from murho.service.predict.memory import Share
    from murho.service.tables.spool import Spool

__all__ = ["headers_of", "read_body", "spool_body", "wanted_within"]


def headers_of(scope: Scope) -> dict[str, str]:
    """Returns the headers by name in lower case; of several with one name, the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def read_body(
    receive: Receive, headers: dict[str, str], seconds: float, most: int, share: Share, *, arrived: bool = False
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
    _require_announced(headers, most)
    try:
        async with nullcontext() if arrived else asyncio.timeout(seconds):
            body, last = await _next_part(receive)
            if not last or len(body) > SMALL_BYTES:
                share.resize(len(body))
            if not last:
                parts = bytearray(body)
                while not last and len(parts) <= most:
                    part, last = await _next_part(receive)
                    share.resize(share.size + len(part))
                    parts += part
                if len(parts) > most:
                    raise _too_large(most)
                body = bytes(parts)
    except TimeoutError:
        raise SlowRequestError(f"The body didn't arrive within {seconds:.3g} seconds.") from None
    if len(body) > most:
        raise _too_large(most)
    return body


async def spool_body(
    receive: Receive, headers: dict[str, str], seconds: float, most: int, share: Share, spool: Spool
) -> None:
    """Collects the whole body in a spool; takes the other arguments of `read_body`, and raises what it raises."""
    _require_announced(headers, most)
    waiting, last = bytearray(), False
    try:
        async with asyncio.timeout(seconds):
            while not last:
                part, last = await _next_part(receive)
                share.resize(len(waiting) + len(part))
                waiting += part
                if spool.size + len(waiting) > most:
                    raise _too_large(most)
                if last or len(waiting) >= WRITTEN_BYTES:
                    await asyncio.to_thread(spool.write, bytes(waiting))
                    waiting.clear()
                    share.resize(0)
    except TimeoutError:
        raise SlowRequestError(f"The body didn't arrive within {seconds:.3g} seconds.") from None


def _require_announced(headers: dict[str, str], most: int) -> None:
    """Checks the size that a request announces.

    Raises:
        TooLargeError: It is above the limit.
    """
    announced = headers.get("content-length", "")
    if announced.isdecimal() and (len(announced) > 18 or int(announced) > most):
        raise _too_large(most)


async def _next_part(receive: Receive) -> tuple[bytes, bool]:
    """Returns the next part of the body, and whether it is the last."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGoneError("The client closed the connection before the end of its request.")
    return message.get("body", b""), not message.get("more_body", False)


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"The body is larger than {most} bytes, the most that this service takes. Send parts.")


def wanted_within(option: float | None, headers: dict[str, str], most: float) -> float:
    """Returns the seconds in which an answer is wanted: the least of the option, the header and the service's limit.

    Raises:
        BadInputError: The header is no positive number.
    """
    wanted = most if option is None else min(most, option)
    said = headers.get("x-request-timeout")
    if said is None:
        return wanted
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        message = f"The header X-Request-Timeout is {said[:80]!r}; it should be a positive number of seconds."
        raise BadInputError([Problem("", message)])
    return min(wanted, seconds)
