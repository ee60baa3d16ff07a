"""One connection: uvicorn's HTTP protocol with bounds on its time and memory, and what draining needs.

Requests are uvicorn's (over httptools), and so is what happens to those that can't be parsed. Of a head that has come,
`middleware.FrontDoor` checks the size.
"""

from __future__ import annotations

import fcntl
import math
import re
import resource
import termios
import uuid
from typing import TYPE_CHECKING, Any, cast

import httptools
import orjson
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from murho.service.errors import (
    HeadersTooLargeError,
    MalformedRequestError,
    ServiceError,
    SlowRequestError,
    problem_details,
)
from murho.service.telemetry.log import LogLimit

if TYPE_CHECKING:
    import asyncio

    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from murho.service.context import ServiceContext
    from murho.service.settings import Settings

NEW_SECONDS = 0.5
"""In this time the first request of a new connection arrives, unless the client waits with it."""
RESERVED_FILES = 512
"""Open files that are no connections: libraries, checkpoints that are loaded, and connections that are refused."""
MAX_REFUSED = 256
"""Connections beyond the limit that are told so; others are cut off."""
OFFER = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
LOG = LogLimit(20, 1.0)
"""A flood of errors is no flood of lines."""


class Connection(HttpToolsProtocol):
    """The protocol of one connection; uvicorn makes one for each.

    Args:
        config: uvicorn's configuration.
        server_state: uvicorn's state, with all connections.
        app_state: The state of the application's lifespan, with its parts.
        _loop: The event loop.
        settings: The limits.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: Settings,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._settings, self._service = settings, cast("ServiceContext", app_state["service"])
        self.timeout_keep_alive = settings.idle_timeout  # type: ignore[assignment]  # uvicorn asks for whole ones
        self._running: RequestResponseCycle | None = None
        self._deaf = False  # after an error nothing is read any more
        self._whole = True  # all requests that have begun
        self._pending_bytes = 0  # that were neither body nor the end of a head, since the last that were
        self._late: asyncio.TimerHandle | None = None  # while a request arrives that nobody reads
        self._sending: asyncio.TimerHandle | None = None  # while the client takes its answer
        self._begun: RequestResponseCycle | None = None  # of which something was sent
        self._head = b""  # of the answer, until more of it comes
        self._left = math.inf

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for a request, which is refused if there are too many connections."""
        super().connection_made(transport)
        self._made, above = self.loop.time(), len(self.connections) - self._settings.max_connections
        if above > 0:
            self.app_state = {**self.app_state, "refused": True}  # `middleware.FrontDoor` says so
            self.timeout_keep_alive = self._settings.header_timeout  # type: ignore[assignment]
        if above > MAX_REFUSED:
            transport.abort()
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """End everything: nobody waits for the requests of this connection any more."""
        self._unset_keepalive_if_required()
        for timer in (self._late, self._sending):
            if timer is not None:
                timer.cancel()
        self.pipeline.clear()
        if self._running is not None and self._answering:  # uvicorn tells the newest request, which may still wait
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)
        # An answer has its connection for a transport. Without this circle no collection of garbage is needed.
        self.cycle = self._running = self._begun = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, within the limits."""
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        self._pending_bytes += len(data)
        if self._whole and b"h2c" in data:
            # Java's client offers HTTP/2 with every request. The parser would take the body for another protocol.
            head, end, rest = data.partition(b"\r\n\r\n")
            data = OFFER.sub(b"", head) + end + rest
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return  # the request is answered, and its connection closed
        except httptools.HttpParserError as error:
            self._refuse(MalformedRequestError(f"This is no HTTP/1.1 request: {error}."))
            return
        if self._pending_bytes > self._settings.max_header_bytes:
            message = f"This service takes at most {self._settings.max_header_bytes} bytes of headers."
            self._refuse(HeadersTooLargeError(message))
        elif not self._answering and not self._whole:
            self._watch_arrival()
        elif self._late is not None:
            self._late.cancel()
            self._late = None
        if self._whole and not self._answering:
            self._await_request()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._whole = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Hand a request on."""
        self._pending_bytes = 0
        super().on_headers_complete()
        self.headers = []  # trailers after a chunked body are no headers of the request
        if self._service.lifecycle.draining or "refused" in self.app_state or self.parser.should_upgrade():
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._whole = True
        self.scope["state"]["arrived"] = True
        super().on_message_complete()
        if self.cycle.response_complete and not self.cycle.keep_alive:
            self._close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.transport = cast("asyncio.Transport", self)
        super()._start_asgi_task(cycle, app)

    # The answer has the connection for its transport, and calls these.

    def write(self, data: bytes) -> None:
        """Send a part of an answer; its head goes with what follows, in one system call, or a moment later."""
        if self._begun is not self._running:
            self._begun, self._head = self._running, data
            self.loop.call_soon(self._send_head)
        elif not self._deaf:
            head, self._head = self._head, b""
            self.transport.write(head + data if head else data)

    def _send_head(self) -> None:
        if self._head:
            self.write(b"")

    def is_closing(self) -> bool:
        """Return whether nothing more is sent."""
        return self.transport.is_closing()

    def close(self) -> None:
        """Close the connection after an answer; a client that still sends its body has time to read it before.

        To close while a client sends would reset the connection, and the answer would be lost.
        """
        self._send_head()
        self.pipeline.clear()
        if self._whole:
            self._close()
        else:
            self._watch_arrival()

    # Times

    def pause_writing(self) -> None:
        """Wait until the client has taken more of its answer, but not forever."""
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        """Go on with the answer."""
        self._left = math.inf
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        self._close()

    def _await_request(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _watch_arrival(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self._settings.header_timeout, self._is_late)

    def _is_late(self) -> None:
        self._late = None
        if self._deaf or "method" in self.scope:  # it is answered
            self._close()
            return
        seconds = self._settings.header_timeout
        self._refuse(SlowRequestError(f"The request's headers didn't arrive within {seconds:.3g} seconds."))

    def _watch_sending(self) -> None:
        if self._sending is None:
            self._left = self.transport.get_write_buffer_size()
            self._sending = self.loop.call_later(self._settings.send_timeout, self._check_sending)

    def _check_sending(self) -> None:
        """Cuts off a client that took nothing of its answer since the last look."""
        self._sending, left = None, self.transport.get_write_buffer_size()
        if left and left >= self._left:
            seconds = self._settings.send_timeout
            self._report(SlowRequestError(f"The client took nothing of its answer for {seconds:.3g} seconds."))
            self.transport.abort()
        elif left:
            self._watch_sending()

    # The end

    def _refuse(self, error: ServiceError) -> None:
        """Say what is wrong, unless an answer is being sent, and close the connection once the client may know."""
        problem, request_id = self._report(error)
        if not self._answering or not self.cycle.response_started:
            body = orjson.dumps(problem)
            head = f"content-type: application/problem+json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
            head += f"x-request-id: {request_id}\r\n\r\n"
            self.transport.write(STATUS_LINE[problem["status"]] + head.encode() + body)
        self._deaf = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._watch_arrival()

    def _report(self, error: ServiceError) -> tuple[dict[str, Any], str]:
        """Count and log an error of the client; return its problem and the id of the log line."""
        request_id = uuid.uuid4().hex
        problem = problem_details(error, request_id).document()
        kind = problem["type"].rpartition(":")[2]
        self._service.telemetry.protocol_errors.labels(kind).inc()
        if (held_back := LOG.hold_back()) is not None:
            structlog.get_logger("murho.connection").warning(
                "connection refused",
                client="{}:{}".format(*self.client) if self.client else "unknown",
                kind=kind,
                status=problem["status"],
                detail=problem["detail"],
                request_id=request_id,
                lines_held_back=held_back,
            )
        return problem, request_id

    def _close(self) -> None:
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._watch_sending()

    @property
    def _answering(self) -> bool:
        """Whether an answer is owed."""
        return self._running is not None and not self._running.response_complete

    # The server calls these while it drains.

    def drain(self) -> None:
        """Let the answer that is owed close the connection."""
        if self._answering and not self.cycle.response_started:
            self.cycle.keep_alive = False

    @property
    def is_new(self) -> bool:
        """Whether no request has come so far, and the first may be on its way."""
        return self._running is None and self.loop.time() < self._made + NEW_SECONDS

    def close_if_idle(self) -> None:
        """Close the connection, unless a request is in progress or has just arrived."""
        if self._answering or self.is_new or not self._whole:
            return
        place = self.transport.get_extra_info("socket").fileno()
        if not any(fcntl.ioctl(place, termios.FIONREAD, bytes(4))):  # bytes that have arrived and are not read
            self._close()


def files_for(connections: int) -> int:
    """Raise this process's limit of open files as far as it is needed and allowed; return what connections may take.

    A soft limit is often 1,024 (256 on macOS) for the sake of old programs, while the hard one is far above.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        wanted = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):  # a system may allow less than its hard limit says
            pass
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    # With a very low limit, half of it.
    left = max(soft - RESERVED_FILES, soft // 2)
    structlog.get_logger("murho.server").warning(
        f"This process may open {soft} files, so it takes at most {left} connections instead of {connections}. "
        "Raise the hard limit of open files (ulimit -Hn, LimitNOFILE), or lower MURHO_MAX_CONNECTIONS."
    )
    return left
