"""One connection: uvicorn's HTTP protocol with limits, with errors as problems, and with care for how it ends.

What it adds to uvicorn's protocol over httptools:

- The size of a request line and its headers, their number, and the time for them are bounded.
- What can't be parsed is answered with a problem, after the answers that are still owed to this client.
- A connection is closed gently: a client that still sends its body has time to read the answer before it is cut off.
- A client that has shut down its side for sending gets its answers (see `_probe`). One that takes nothing of its answer
  is cut off.
- While the service drains, every answer closes its connection.

The test `test_uvicorn_has_what_is_overridden` names the parts of uvicorn that are used here.
"""

from __future__ import annotations

import fcntl
import struct
import termios
import uuid
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, cast

import httptools
import orjson
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from murho.service.errors import (
    HeadersTooLargeError,
    MalformedRequestError,
    NotReadyError,
    ServiceError,
    SlowRequestError,
    TargetTooLongError,
    TooManyConnectionsError,
    problem_details,
)
from murho.service.log_limit import LogLimit

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
    from uvicorn.server import ServerState

    from murho.service.connection_limits import ConnectionLimits
    from murho.service.parts import Parts

__all__ = ["Connection", "Gate"]

# In this time a client that was refused, or whose body nobody reads any more, may read the answer; then it is cut off.
LINGER_SECONDS = 5.0
# So many refused connections get this time; the others are closed as soon as the refusal is sent.
LINGERING_REFUSED = 256
# Requests that wait for the answer to an earlier one of their connection.
MAX_PIPELINED = 100
# Pauses between the probes of a half-closed connection: the first, doubled up to the last. HTTP/1.0 ends at the third.
FIRST_PROBE = 0.1
LAST_PROBE = 5.0
OLD_CLIENT_PAUSE = 0.8


class Part(Enum):
    """The part of a request that arrives now."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()


@dataclass(slots=True)
class Gate:
    """What all connections of a server share.

    Attributes:
        limits: Of each connection, and of their number.
        refused: Connections that are open only to be told that there are too many.
        log: Bounds the lines about clients' errors.
    """

    limits: ConnectionLimits
    refused: int = 0
    log: LogLimit = field(default_factory=lambda: LogLimit(20, 1.0))


class AnswerTransport:
    """The transport as an answer sees it, which closes it when it says `connection: close`."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close


class Connection(HttpToolsProtocol):
    """The protocol of one connection; uvicorn makes one for each.

    Args:
        config: uvicorn's configuration.
        server_state: uvicorn's state, with all connections.
        app_state: The state of the application's lifespan, with its parts.
        _loop: The event loop.
        gate: Shared by all connections.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        gate: Gate,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        parts: Parts = app_state["parts"]
        self._gate = gate
        self._limits = gate.limits
        self._lifecycle = parts.lifecycle
        self._telemetry = parts.telemetry
        self.timeout_keep_alive = self._limits.idle_seconds  # type: ignore[assignment]  # uvicorn asks for whole ones
        self._arriving = Part.NOTHING
        self._running: RequestResponseCycle | None = None
        # Bytes that were neither body nor the end of a head, since the last that were.
        self._overhead = 0
        self._progress = False
        self._refusal: ServiceError | None = None
        self._deaf = False  # what still arrives is dropped
        self._offered = False  # a protocol to upgrade to
        self._turned_away = False
        self._half_closed = False
        self._timer: asyncio.TimerHandle | None = None  # of the head, or of lingering
        self._probe_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    # The transport calls these.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begins, or refuses, if there are too many connections."""
        super().connection_made(transport)
        self._answer_transport = AnswerTransport(transport, self._close_gently)
        if len(self.connections) - self._gate.refused > self._limits.connections:
            self._turned_away = True
            self._gate.refused += 1
            message = f"The service takes {self._limits.connections} connections at a time. Try again later."
            self._refuse(TooManyConnectionsError(message, retry_after=1))
        else:
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends everything: nobody waits for the requests of this connection any more."""
        self._disarm()
        self._unset_keepalive_if_required()
        for timer in (self._probe_timer, self._send_timer):
            if timer is not None:
                timer.cancel()
        if self._turned_away:
            self._gate.refused -= 1
        self.pipeline.clear()
        # uvicorn tells the newest request alone, which may still wait for an earlier one.
        self._cut_off_running()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parses what has arrived, within the limits."""
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        self._overhead += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self._refuse(_refusal_of(error))
            return
        if self._progress:
            self._progress = False
            self._overhead = 0
        elif self._overhead > self._limits.head_bytes:
            self._refuse(self._too_large())
            return
        if self._arriving is Part.HEAD:
            if self._timer is None:
                self._arm(self._limits.head_seconds, self._head_is_late)
        elif self._arriving is Part.NOTHING and not self._answering:
            self._await_request()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio keeps the transport open if it is true
        """Goes on with the requests that have arrived in full, although no more can come."""
        self._half_closed = True
        if not self._deaf and self._arriving is not Part.NOTHING:
            self._refuse(MalformedRequestError("The connection ended before the request did."))
        if self._answering and self._probe_timer is None:
            self._probe_timer = self.loop.call_later(FIRST_PROBE, self._probe, FIRST_PROBE)
        return self._answering

    def pause_writing(self) -> None:
        """Waits until the client has taken more of its answer, but not forever."""
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        """Goes on with the answer."""
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
        super().resume_writing()

    # The parser calls these.

    def on_message_begin(self) -> None:
        """Begins a request."""
        self._arriving = Part.HEAD
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Hands a request on, if its head is within the limits.

        Raises:
            ServiceError: It isn't; or too many requests wait for an answer.
        """
        self._disarm()
        self._progress = True
        self._check_head()
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
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
        self._disarm()
        super().on_message_complete()

    # uvicorn calls these.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.transport = cast("asyncio.Transport", self._answer_transport)
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Goes on after an answer: with the next request, or with what was put off until here."""
        super().on_response_complete()
        if self.transport.is_closing() or self._answering:
            return
        if self._deaf or self._half_closed or self._arriving is Part.BODY:
            self._unset_keepalive_if_required()
        if self._refusal is not None:
            self._send_refusal()
        elif self._half_closed:
            self._close()
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
        if self._answering:
            self.drain()
            return
        if self._arriving is Part.HEAD and not self._deaf:
            self._refuse(NotReadyError("The service is shutting down.", retry_after=5))
        self._close()

    # The server calls these while it drains.

    def drain(self) -> None:
        """Lets the last answer that is owed close the connection."""
        if self._answering and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def close_if_idle(self) -> None:
        """Closes the connection, unless a request is in progress or has just arrived."""
        if self._answering or self._arriving is not Part.NOTHING or _unread_bytes(self.transport):
            return
        self._close()

    # Refusing

    @property
    def _answering(self) -> bool:
        """Whether an answer is owed."""
        return self._running is not None and not self._running.response_complete and not self._running.disconnected

    def _feed(self, data: bytes) -> None:
        """Parses, and goes on in HTTP/1.1 where a client offers another protocol, as Java's does with every request.

        The parser takes what follows the headers of such a request for the other protocol. So it gets the headers once
        more, without the offer.
        """
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                if self._offered:
                    self._offered = False
                    method, version = self.parser.get_method(), self.parser.get_http_version().encode()
                    data = _head_without_offer(method, self.url, version, self.headers) + data
            else:
                return

    def _check_head(self) -> None:
        limits = self._limits
        if len(self.url) > limits.target_bytes:
            raise self._too_large()
        # The exact size is counted only where what has arrived in all is above the limit.
        if len(self.headers) > limits.headers or (
            self._overhead > limits.head_bytes
            and len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > limits.head_bytes
        ):
            raise self._too_large()
        if len(self.pipeline) >= MAX_PIPELINED:
            raise MalformedRequestError(f"More than {MAX_PIPELINED} requests wait for an answer on one connection.")

    def _too_large(self) -> ServiceError:
        limits = self._limits
        if len(self.url) > limits.target_bytes:
            return TargetTooLongError(
                f"Path and query are longer than {limits.target_bytes} bytes. Send options in the body."
            )
        return HeadersTooLargeError(
            f"This service takes at most {limits.headers} headers with {limits.head_bytes} bytes in all."
        )

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
        request_id = self._report(error)
        problem = problem_details(error, request_id)
        body = orjson.dumps(problem.document())
        headers = {
            "content-type": "application/problem+json",
            "content-length": str(len(body)),
            "x-request-id": request_id,
            "connection": "close",
            **problem.headers,
        }
        lines = [STATUS_LINE[problem.status]]
        lines += [name + b": " + value + b"\r\n" for name, value in self.server_state.default_headers]
        lines += [f"{name.lower()}: {value}\r\n".encode("ascii") for name, value in headers.items()]
        self.transport.write(b"".join((*lines, b"\r\n", body)))
        if self._turned_away and self._gate.refused > LINGERING_REFUSED:
            self._close()
        else:
            self._linger()

    def _report(self, error: ServiceError) -> str:
        """Counts and logs an error of a client; returns its id."""
        request_id = uuid.uuid4().hex
        problem = problem_details(error, request_id)
        kind = problem.type.rpartition(":")[2]
        self._telemetry.protocol_errors.labels(kind).inc()
        held_back = self._gate.log.held_back()
        if held_back is not None:
            structlog.get_logger("murho.connection").warning(
                "connection refused",
                client="{}:{}".format(*self.client) if self.client else "unknown",
                kind=kind,
                status=problem.status,
                detail=problem.detail,
                cause=repr(error.__cause__) if error.__cause__ else None,
                request_id=request_id,
                lines_held_back=held_back,
            )
        return request_id

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

    def _close_gently(self) -> None:
        """Closes the connection after an answer, and not before the client could read it."""
        if self._arriving is Part.BODY and not self.pipeline:
            self._deaf = True
            self._linger()
        else:
            self._close()

    def _linger(self) -> None:
        """Ends the own side. To close while a client sends would reset the connection, and the answer would be lost."""
        if self._half_closed or not self.transport.can_write_eof():
            self._close()
            return
        self.transport.write_eof()
        self.flow.resume_reading()
        self._arm(LINGER_SECONDS, self.transport.abort)

    def _close(self) -> None:
        self._disarm()
        self.transport.close()
        self._watch_sending()

    def _watch_sending(self) -> None:
        """Sees to it that the client takes what is written."""
        left = self.transport.get_write_buffer_size()
        if left and self._send_timer is None:
            self._send_timer = self.loop.call_later(self._limits.send_seconds, self._check_sending, left)

    def _check_sending(self, before: int) -> None:
        self._send_timer = None
        if self.transport.get_write_buffer_size() < before:
            self._watch_sending()
            return
        seconds = self._limits.send_seconds
        self._report(SlowRequestError(f"The client took nothing of its answer for {seconds:.3g} seconds."))
        self.transport.abort()

    def _probe(self, pause: float) -> None:
        """Asks whether a client that sends no more still listens, while it waits for an answer.

        TCP does not tell a client that has shut down its side for sending from one that is gone, until something is
        sent. So an interim answer is: every HTTP/1.1 client skips `100 Continue`, and the machine of a client that is
        gone answers with a reset, which makes the next write fail. HTTP/1.0 has no interim answers; such a client
        counts as gone after a moment.
        """
        self._probe_timer = None
        if not self._answering or self._running is None or self.transport.is_closing():
            return
        if not self._running.response_started:
            if self._running.scope["http_version"] == "1.1":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            elif pause >= OLD_CLIENT_PAUSE:
                self.transport.abort()
                return
        pause = min(2.0 * pause, LAST_PROBE)
        self._probe_timer = self.loop.call_later(pause, self._probe, pause)

    def _arm(self, seconds: float, then: Callable[[], object]) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, then)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _refusal_of(error: httptools.HttpParserError) -> ServiceError:
    """Returns what to say of an error of the parser."""
    cause = error.__context__
    if isinstance(cause, ServiceError):
        return cause
    reason = str(error) if cause is None else "its target isn't a valid path"
    refusal = MalformedRequestError(f"This is no HTTP/1.1 request: {reason}.")
    refusal.__cause__ = cause
    return refusal


def _head_without_offer(method: bytes, target: bytes, version: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Returns the head of a request without what offers another protocol."""
    lines = [method + b" " + target + b" HTTP/" + version]
    for name, value in headers:
        if name == b"connection":
            kept = [token for token in value.split(b",") if token.strip().lower() != b"upgrade"]
            lines.append(b"connection: " + b",".join(kept))
        elif name != b"upgrade":
            lines.append(name + b": " + value)
    return b"\r\n".join((*lines, b"", b""))


def _unread_bytes(transport: asyncio.Transport) -> int:
    """Returns the number of bytes that have arrived at a socket and are not read."""
    place = transport.get_extra_info("socket").fileno()
    (count,) = struct.unpack("i", fcntl.ioctl(place, termios.FIONREAD, struct.pack("i", 0)))
    return int(count)
