"""ASGI middleware: `RequestLog` is the outermost, then come `direct_paths.DirectPaths` and `BodyLimit`.

It is pure ASGI because the framework's request/response middleware hides a client's disconnection.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from itertools import count
from typing import TYPE_CHECKING

import structlog
from starlette.datastructures import Headers

from murho.service.errors import NotReadyError, TooLargeError
from murho.service.http.responses import problem_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from murho.service.http.lifecycle import Lifecycle
    from murho.service.telemetry.access_log import AccessLog
    from murho.service.telemetry.metrics import Telemetry

__all__ = ["BodyLimit", "RequestLog"]

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
# Machines request these every few seconds: one log line each would bury the rest.
QUIET_ROUTES = frozenset({"/healthz", "/readyz", "/metrics", "/ping", "/v2/health/live", "/v2/health/ready"})


class RequestLog:
    """Gives every request an id, logs it and counts it in the metrics; no exception gets past it.

    The id is the client's `x-request-id` if it matches `REQUEST_ID`, else a new one. The answer carries it too.
    """

    def __init__(self, app: ASGIApp, telemetry: Telemetry, lifecycle: Lifecycle, access_log: AccessLog) -> None:
        self.app = app
        self.telemetry = telemetry
        self.lifecycle = lifecycle
        self.access_log = access_log
        self.request_ids = RequestIds()
        self.log = structlog.get_logger("murho.access")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin = time.perf_counter()
        request_id = self.request_ids.of(scope)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except asyncio.CancelledError:
            if status or not self.lifecycle.closing:
                raise
            # The grace after SIGTERM is over and the server cancels the request. It still gets an answer.
            error = NotReadyError("The service stopped before the answer was computed.", retry_after=5)
            await problem_response(error, scope)(scope, receive, send_with_id)
        except Exception as error:
            self.log.exception("request failed", request_id=request_id, path=scope["path"])
            if status == 0:
                await problem_response(error, scope)(scope, receive, send_with_id)
        finally:
            self._record(scope, request_id, status, time.perf_counter() - begin)

    def _record(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        # The route template, never the path: clients can invent any number of paths.
        state = scope["state"]
        route = state.get("route") or getattr(scope.get("route"), "path", "unmatched")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.telemetry.count(method, route, status, seconds)
        client = scope.get("client")
        self.access_log.write(
            {
                "method": method,
                "path": scope["path"],
                "status": status,
                "ms": round(1000 * seconds, 2),
                "client": client[0] if client else None,
                **state.get("facts", {}),
                "request_id": request_id,
            },
            quiet=route in QUIET_ROUTES,
        )


class RequestIds:
    """New ids of requests: a random part for the process, and a number. Random bits for each cost a system call."""

    def __init__(self) -> None:
        self._prefix = uuid.uuid4().hex[:20]
        self._numbers = count(1)

    def of(self, scope: Scope) -> str:
        """Returns the client's id if it is a plain one, else a new one."""
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                given: str = value.decode("latin-1")
                if REQUEST_ID.fullmatch(given):
                    return given
        return f"{self._prefix}{next(self._numbers):012x}"


class BodyLimit:
    """Refuses bodies above a limit, by their Content-Length or by the bytes read.

    The error is raised where the body is read, so that it is answered like any other error.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        too_large = TooLargeError(
            f"The body is larger than {self.max_bytes} bytes, the most that this service takes. Send parts."
        )
        read = 0

        async def limited_receive() -> Message:
            nonlocal read
            if announced.isdecimal() and (len(announced) > 18 or int(announced) > self.max_bytes):
                raise too_large
            message = await receive()
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > self.max_bytes:
                    raise too_large
            return message

        await self.app(scope, limited_receive, send)
