"""Whether the client of a connection is still there: does it take what is written, and does it still listen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.service.http.raw_http import CONTINUE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

__all__ = ["ListenerProbe", "SendWatch"]

# Seconds between the probes of a half-closed connection: the first pause, doubled up to the last.
FIRST_PAUSE = 0.1
LAST_PAUSE = 5.0
# The pause after which a client of HTTP/1.0 counts as gone: 0.1 + 0.2 + 0.4 + 0.8 = 1.5 seconds in all.
OLD_CLIENT_PAUSE = 0.8


class SendWatch:
    """Watches that a client takes what is written, however slowly.

    Args:
        loop: The event loop.
        transport: Of the connection.
        seconds: In which the client takes nothing.
        stalled: Called then.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        seconds: float,
        stalled: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._seconds = seconds
        self._stalled = stalled
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Watches, if there is anything left to send."""
        left = self._transport.get_write_buffer_size()
        if left and self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._check, left)

    def end(self) -> None:
        """Stops watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, before: int) -> None:
        self._timer = None
        if self._transport.get_write_buffer_size() < before:
            self.begin()
        else:
            self._stalled()


class ListenerProbe:
    """Asks whether a client that sends no more still listens, while it waits for an answer.

    A client that has shut down its side for sending waits for its answer; one that is gone doesn't. TCP tells them
    apart only when something is sent to them. So an interim answer is: every HTTP/1.1 client skips `100 Continue` (RFC
    9110, section 15.2.1), and the machine of a client that is gone answers with a reset, which makes the next write
    fail. HTTP/1.0 has no interim answers. Such a client counts as gone after a moment.

    Args:
        loop: The event loop.
        transport: Of the connection.
        waiting: Returns the request that waits for an answer, None if there is none.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        waiting: Callable[[], RequestResponseCycle | None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._waiting = waiting
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Probes after a moment, so that the client of a quick answer sees nothing of it, and then again and again."""
        if self._timer is None:
            self._timer = self._loop.call_later(FIRST_PAUSE, self._probe, FIRST_PAUSE)

    def end(self) -> None:
        """Stops probing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _probe(self, pause: float) -> None:
        self._timer = None
        request = self._waiting()
        if request is None or self._transport.is_closing():
            return
        # Once the answer has begun, its own bytes tell.
        if not request.response_started:
            if request.scope["http_version"] == "1.1":
                self._transport.write(CONTINUE)
            elif pause >= OLD_CLIENT_PAUSE:
                self._transport.abort()
                return
        pause = min(2.0 * pause, LAST_PAUSE)
        self._timer = self._loop.call_later(pause, self._probe, pause)
