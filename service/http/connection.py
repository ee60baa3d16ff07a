"""One connection: uvicorn's HTTP protocol with limits, with errors as problems, and with care for how it ends.

What it adds to uvicorn's protocol over httptools:

- The size of a request line and its headers, their number, and the time for them are bounded.
- What can't be parsed is answered with a problem, after the answers that are still owed to this client.
- A connection is closed gently: a client that still sends its body has time to read the answer before it is cut off.
- A client that takes nothing of its answer is cut off. One that has ended its side has gone: its work is dropped.
- While the service drains, every answer closes its connection.

The test `test_uvicorn_has_what_is_overridden` names the parts of uvicorn that are used here.
"""

from __future__ import annotations

import fcntl
import struct
import termios
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from murho.service.errors import (
    MalformedRequestError,
    NotReadyError,
    ProblemDetails,
    ServiceError,
    SlowRequestError,
    TooManyConnectionsError,
    TransferCodingError,
)
from murho.service.http.limits import ConnectionLimits, head_without_offer, problem_bytes, refusal_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from murho.service.parts import Parts

# In this time a client that was refused, or whose body nobody reads any more, may read the answer; then it is cut off.
LINGER_SECONDS = 5.0
# In this time a new connection's first request arrives, unless the client waits with it.
NEW_SECONDS = 0.5
# Requests that wait for the answer to an earlier one of their connection.
MAX_PIPELINED = 100

HEAD_OF_ANSWER = (b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4", b"HTTP/1.1 5")
MOST_JOINED = 2**16


class Part(Enum):
    """The part of a request that arrives now."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()


class Connection(HttpToolsProtocol):
    """The protocol of one connection; uvicorn makes one for each.

    Args:
        config: uvicorn's configuration.
        server_state: uvicorn's state, with all connections.
        app_state: The state of the application's lifespan, with its parts.
        _loop: The event loop.
        limits: Shared by all connections.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        parts: Parts = app_state["parts"]
        self._limits = limits
        self._lifecycle = parts.lifecycle
        self._telemetry = parts.telemetry
        self.timeout_keep_alive = self._limits.idle_seconds  # type: ignore[assignment]  # uvicorn asks for whole ones
        self._arriving = Part.NOTHING
        self._running: RequestResponseCycle | None = None
        # Bytes that were neither body nor the end of a head, since the last that were.
        self._overhead = 0
        self._progress = False
        self._head = b""  # of an answer, until the first part of its body comes
        self._refusal: ServiceError | None = None
        self._deaf = False  # what still arrives is dropped
        self._offered = False  # a protocol to upgrade to
        self._turned_away = False
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None  # of the head, or of lingering
        self._sending: asyncio.TimerHandle | None = None  # while the client takes its answer

    # The transport calls these.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begins, or refuses, if there are too many connections."""
        super().connection_made(transport)
        self._made = self.loop.time()
        if len(self.connections) - self._limits.refused > self._limits.connections:
            self._turned_away = True
            self._limits.refused += 1
            message = f"The service takes {self._limits.connections} connections at a time. Try again later."
            self._refuse(TooManyConnectionsError(message, retry_after=1))
        else:
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends everything: nobody waits for the requests of this connection any more."""
        self._unset_keepalive_if_required()
        for timer in (self._timer, self._sending):
            if timer is not None:
                timer.cancel()
        if self._turned_away:
            self._limits.refused -= 1
        self.pipeline.clear()
        # uvicorn tells the newest request alone, which may still wait for an earlier one.
        self._cut_off_running()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parses what has arrived, within the limits."""
        if self._deaf:
            return
        self._overhead += len(data)
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    data = b""
                except httptools.HttpParserUpgrade as upgrade:
                    data = self._without_offer(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(refusal_of(error))
            return
        if self._progress:
            self._progress = False
            self._overhead = 0
        elif self._overhead > self._limits.head_bytes:
            self._refuse(self._limits.too_large(self.url))
            return
        if self._arriving is Part.HEAD and self._timer is None:
            self._arm(self._limits.head_seconds, self._head_is_late)

    def eof_received(self) -> None:
        """Ends the connection, as asyncio does then: the client has gone."""
        if not self._deaf and self._arriving is not Part.NOTHING:
            self._refuse(MalformedRequestError("The connection ended before the request did."))

    def pause_writing(self) -> None:
        """Waits until the client has taken more of its answer, but not forever."""
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        """Goes on with the answer."""
        self._stop_watching()
        super().resume_writing()

    # The parser calls these.

    def on_message_begin(self) -> None:
        """Begins a request."""
        self._unset_keepalive_if_required()
        self._arriving = Part.HEAD
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Hands a request on, if its head is within the limits.

        Raises:
            ServiceError: It isn't; or too many requests wait for an answer.
        """
        if self._timer is not None:
            self._disarm()
        self._progress = True
        method = self.parser.get_method()
        self._check_head(method)
        if len(self.pipeline) >= MAX_PIPELINED:
            raise MalformedRequestError(f"More than {MAX_PIPELINED} requests wait for an answer on one connection.")
        if self.parser.should_upgrade() and method != b"CONNECT":
            self._offered = True
            return
        super().on_headers_complete()
        self._arriving = Part.BODY
        # Trailers after a chunked body are no headers of the request.
        self.headers = []
        if self._lifecycle.draining or self.scope["method"] == "CONNECT":
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Takes a part of a body."""
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Ends a request."""
        if self._offered:
            return
        self._arriving = Part.NOTHING
        if self._timer is not None:
            self._disarm()
        self.scope["state"]["arrived"] = True
        super().on_message_complete()

    # uvicorn calls these.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.transport = cast("asyncio.Transport", self)
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Goes on after an answer: with the next request, or with what was put off until here."""
        if self._head:  # the answer has no body
            self.write(b"")
        super().on_response_complete()
        if self.transport.is_closing() or self._answering:
            return
        if self._deaf or self._arriving is not Part.NOTHING:
            self._unset_keepalive_if_required()
        if self._refusal is not None:
            self._send_refusal()
        elif self._arriving is Part.BODY and not self._deaf:
            # Nobody reads the rest of this body. If it is short, the connection can be used again.
            self._arm(LINGER_SECONDS, self._close)
        elif self._lifecycle.closing:
            self.close_if_idle()

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection."""
        self._close()

    def shutdown(self) -> None:
        """Ends the connection, after the answers that are owed; the server stops."""
        self._stopping = True
        if self._answering:
            self.drain()
            return
        if self._arriving is Part.HEAD and not self._deaf:
            self._refuse(NotReadyError("The service is shutting down.", retry_after=5))
        self._close()

    # The answer has the connection for its transport, and calls these.

    def write(self, data: bytes) -> None:
        """Sends a part of an answer: the head together with the first part of the body, in one packet."""
        if not self._head and data.startswith(HEAD_OF_ANSWER):
            self._head = data
        elif len(data) <= MOST_JOINED:
            self.transport.write(self._head + data)
            self._head = b""
        else:
            self.transport.write(self._head)
            self.transport.write(data)
            self._head = b""

    def is_closing(self) -> bool:
        """Returns whether nothing more is sent."""
        return self.transport.is_closing()

    def close(self) -> None:
        """Closes the connection after an answer, and not before the client could read it."""
        if self._head:
            self.write(b"")
        self._deaf = True
        self.pipeline.clear()
        if self._stopping:
            self._close()
        else:
            self._linger()

    # The server calls these while it drains.

    def drain(self) -> None:
        """Lets the last answer that is owed close the connection."""
        if self._answering and not self.cycle.response_started:
            self.cycle.keep_alive = False

    @property
    def is_new(self) -> bool:
        """Whether no request has come so far, and the first may be on its way."""
        return self._running is None and self.loop.time() < self._made + NEW_SECONDS

    def close_if_idle(self) -> None:
        """Closes the connection, unless a request is in progress or has just arrived."""
        if self._answering or self.is_new or self._arriving is not Part.NOTHING or unread_bytes(self.transport):
            return
        self._close()

    # Refusing

    @property
    def _answering(self) -> bool:
        """Whether an answer is owed."""
        return self._running is not None and not self._running.response_complete and not self._running.disconnected

    def _check_head(self, method: bytes) -> None:
        """Checks a request's head: its limits, and what servers beside this one may understand in another way.

        Raises:
            HeadersTooLargeError, TargetTooLongError: A limit is passed.
            MalformedRequestError: The version isn't HTTP/1, or the request doesn't say its host once (RFC 9112, 3.2).
            TransferCodingError: The body is in another transfer coding than chunked (RFC 9112, 6.1).
        """
        limits, version, target = self._limits, self.parser.get_http_version(), self.url
        if len(target) > limits.target_bytes or len(self.headers) > limits.headers:
            raise limits.too_large(target)
        # Only where all that has arrived, which may be more than the head, is above the limit, is the size counted.
        if self._overhead > limits.head_bytes:
            size = len(target) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > limits.head_bytes:
                raise limits.too_large(target)
        if version not in {"1.1", "1.0"}:
            raise MalformedRequestError(f"This is no HTTP/1.1 request: its version is {version}.")
        hosts = []
        for name, value in self.headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"transfer-encoding":
                if version == "1.0":
                    raise MalformedRequestError("This is no HTTP/1.1 request: HTTP/1.0 has no transfer codings.")
                if value.strip().lower() != b"chunked":
                    raise TransferCodingError("This service takes the transfer coding chunked alone.")
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            raise MalformedRequestError(
                f"This is no HTTP/1.1 request: it has {len(hosts)} Host headers instead of one."
            )
        if target[:1] == b"/" or (target == b"*" and method == b"OPTIONS"):
            return
        scheme, _, rest = target.partition(b"://")
        authority = rest.partition(b"/")[0].partition(b"?")[0]
        if scheme.lower() not in {b"http", b"https"} or not authority:
            raise MalformedRequestError("This is no HTTP/1.1 request: its target isn't a valid path.")
        if hosts and authority.lower() != hosts[0].lower():
            raise MalformedRequestError("This is no HTTP/1.1 request: its target and its Host header name two hosts.")

    def _without_offer(self, rest: bytes) -> bytes:
        """Returns what to parse once a client has offered another protocol, as Java's does with every request.

        The parser takes what follows the headers of such a request for the other protocol. So it gets the headers once
        more, without the offer, and goes on in HTTP/1.1.

        Args:
            rest: What follows the headers.
        """
        if not self._offered:
            return rest
        self._offered = False
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        # After an offer with `Connection: close`, or of HTTP/1.0, the parser would read nothing more.
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return head_without_offer(method, self.url, version, self.headers) + rest

    def _head_is_late(self) -> None:
        self._timer = None
        if self.flow.read_paused:  # it is late because nothing is read at the moment
            self._arm(self._limits.head_seconds, self._head_is_late)
            return
        seconds = self._limits.head_seconds
        self._refuse(SlowRequestError(f"The request's headers didn't arrive within {seconds:.3g} seconds."))

    def _refuse(self, error: ServiceError) -> None:
        """Says what is wrong, after the answers that are still owed, and closes the connection."""
        self._disarm()
        self._unset_keepalive_if_required()
        self._deaf = True
        self._refusal = error
        if self._arriving is Part.BODY:
            # The newest request will never be whole.
            if self.pipeline:
                self.pipeline.popleft()
            elif self._running is None or self._running.response_started:
                self._report(error)
                self._cut_off_running()
                self._close()
                return
            else:
                self._cut_off_running()
        if not self._answering:
            self._send_refusal()

    def _send_refusal(self) -> None:
        error, self._refusal = self._refusal, None
        if error is None or self.transport.is_closing():
            return
        problem, request_id = self._report(error)
        self.transport.write(problem_bytes(problem, request_id, self.server_state.default_headers))
        if self._turned_away and not self._limits.linger:
            self._close()
        else:
            self._linger()

    def _report(self, error: ServiceError) -> tuple[ProblemDetails, str]:
        return self._limits.report(error, self.client, self._telemetry)

    # Closing

    def _await_request(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self._limits.idle_seconds, self.timeout_keep_alive_handler)

    def _cut_off_running(self) -> None:
        """Tells the request in progress that nobody waits for it any more."""
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
            self.flow.resume_writing()

    def _linger(self) -> None:
        """Ends the own side, and drops what still arrives, until the client has ended its side too.

        To close while a client sends would reset the connection, and the answer would be lost.
        """
        self.transport.write_eof()
        self.flow.resume_reading()
        self._arm(LINGER_SECONDS, self.transport.abort)

    def _close(self) -> None:
        self._disarm()
        self.transport.close()
        self._watch_sending()

    # Sending

    def _watch_sending(self) -> None:
        """Watches that the client takes what is left to send, however slowly."""
        left = self.transport.get_write_buffer_size()
        if left and self._sending is None:
            self._sending = self.loop.call_later(self._limits.send_seconds, self._check_sending, left)

    def _check_sending(self, before: int) -> None:
        self._sending = None
        if self.transport.get_write_buffer_size() < before:
            self._watch_sending()
            return
        seconds = self._limits.send_seconds
        self._report(SlowRequestError(f"The client took nothing of its answer for {seconds:.3g} seconds."))
        self.transport.abort()

    def _stop_watching(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _arm(self, seconds: float, then: Callable[[], object]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, then)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def unread_bytes(transport: asyncio.Transport) -> int:
    """Returns the number of bytes that have arrived at a socket and are not read."""
    place = transport.get_extra_info("socket").fileno()
    (count,) = struct.unpack("i", fcntl.ioctl(place, termios.FIONREAD, struct.pack("i", 0)))
    return int(count)
