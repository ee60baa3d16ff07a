"""ASGI middleware: `RequestLog` is the outermost; `FrontDoor` refuses; `Paths` answers, or hands on to the framework.

It is pure ASGI because the framework's request/response middleware hides a client's disconnection.

A browser runs pages of strangers beside a service that only its machine reaches. The same-origin policy keeps such a
page from reading answers, not from sending requests. And it compares names: a page of evil.example reads everything
once that name leads to 127.0.0.1 (DNS rebinding). So a service without keys on a loopback address answers to names of
its own machine alone, and a page of another site changes nothing anywhere.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, cast

import orjson
import structlog
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from murho.model.errors import MurhoError
from murho.service.errors import (
    ForeignPageError,
    HeadersTooLargeError,
    MisdirectedError,
    NotReadyError,
    TargetTooLongError,
    TooManyConnectionsError,
    problem_response,
)
from murho.service.security import Caller
from murho.service.telemetry.log import REQUEST_ID, TRACEPARENT, Stderr, Tracing, escape_texts, for_people

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from murho.service.context import Lifecycle, ServiceContext
    from murho.service.settings import Settings
    from murho.service.telemetry.metrics import Telemetry

PLAIN_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")
UNMATCHED = "unmatched"
"""The route of a request that has none."""
SERVER_TIMING = "queue;dur={queue_ms}, compute;dur={compute_ms}, total;dur={total:.2f}"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
# Machines request these every few seconds: one log line each would bury the rest.
QUIET_ROUTES = frozenset({"/healthz", "/readyz", "/metrics", "/ping", "/v2/health/live", "/v2/health/ready"})


@dataclass(eq=False)
class RequestLog:
    """Gives every request an id, logs it, counts it and traces it; no exception gets past it.

    The id is the client's `x-request-id` if it matches `PLAIN_ID`, else a new one. The answer has it, and so has every
    line of the log about the request. The answer to a prediction says what took the time (`Server-Timing`), and where
    it is in a trace: its own span, or the caller's where there is none.

    Args:
        app: Answers.
        front_door: Refuses some requests.
        telemetry: Counts.
        lifecycle: Says whether the service is closing.
        access_log: Gets a line a request.
        tracing: Gets a span a prediction.
    """

    app: ASGIApp
    front_door: FrontDoor
    telemetry: Telemetry
    lifecycle: Lifecycle
    access_log: AccessLog
    tracing: Tracing | None = None
    # New ids are a random part for the process, and a number. Random bits for each would cost a system call.
    _prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:20])
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, since = time.perf_counter(), time.time_ns()
        # Of several headers with one name, the last counts.
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        request_id = headers.get("x-request-id", "")
        if not PLAIN_ID.fullmatch(request_id):
            request_id = f"{self._prefix}{next(self._numbers):012x}"
        REQUEST_ID.set(request_id)
        state = scope.setdefault("state", {})
        state["request_id"], state["headers"] = request_id, headers
        traceparent = headers.get("traceparent", "")
        status, span = 0, None
        head: Message | None = None

        async def send_with_id(message: Message) -> None:
            nonlocal head, status, span, traceparent
            if message["type"] == "http.response.start":
                head = message  # it is sent with the first part of the body
                return
            if head is not None:
                status = head["status"]
                sent = [*head.get("headers", ()), (b"x-request-id", request_id.encode())]
                if self.tracing is not None:
                    trace = {"traceparent": traceparent, "tracestate": headers.get("tracestate", "")}
                    span = self.tracing.begin(scope["method"], state.get("route", UNMATCHED), trace, since)
                    if span is not None:
                        traceparent = self.tracing.traceparent(span)
                if traceparent and TRACEPARENT.fullmatch(traceparent):
                    sent.append((b"traceparent", traceparent.encode()))
                if (facts := state.get("facts")) is not None:
                    total = 1000.0 * (time.perf_counter() - begin)
                    sent.append((b"server-timing", SERVER_TIMING.format(total=total, **facts).encode()))
                await send({**head, "headers": sent})
                head = None
            await send(message)

        try:
            self.front_door.check(scope)
            await self.app(scope, receive, send_with_id)
        except asyncio.CancelledError:
            if status or not self.lifecycle.closing:
                raise
            # The grace after SIGTERM is over and the server cancels the request. It still gets an answer.
            error = NotReadyError("The service stopped before the answer was computed.")
            await problem_response(error, scope)(scope, receive, send_with_id)
        except Exception as error:
            response = problem_response(error, scope)
            if response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
                structlog.get_logger("murho.access").exception(
                    "request failed", request_id=request_id, path=scope["path"]
                )
            if status == 0:
                await response(scope, receive, send_with_id)
        finally:
            trace = found[1] if traceparent and (found := TRACEPARENT.fullmatch(traceparent)) else None
            said = self._record(scope, request_id, status, time.perf_counter() - begin, trace)
            if span is not None and self.tracing is not None:
                self.tracing.end(span, status, said)

    def _record(
        self, scope: Scope, request_id: str, status: int, seconds: float, trace: str | None
    ) -> dict[str, str | float | None]:
        """Count a request and logs it; return what is known of it."""
        # The template, never the path: clients can invent any number of paths.
        route, client = scope["state"].get("route", UNMATCHED), scope.get("client")
        method = scope["method"] if scope["method"] in METHODS else "other"
        said: dict[str, str | float | None] = {
            "method": method,
            "path": scope["path"],
            "status": status,
            "ms": round(1000 * seconds, 2),
            "client": client[0] if client else None,
            **scope["state"].get("facts", {}),
            "request_id": request_id,
        }
        if trace is not None:
            said["trace_id"] = trace
        self.access_log.write(said, quiet=route in QUIET_ROUTES)
        self.telemetry.count(method, route, status, seconds)
        return said


FLUSH_SECONDS = 0.2
FLUSH_LINES = 1000
WHOLE_BYTES = 4096
"""What is written to a pipe at once stays in one piece up to here, whoever else writes to it."""


class AccessLog:
    """Writes lines on requests to stderr, from one event loop, in batches where machines read them.

    A line of its own for each request would cost a system call, more than all else that the log does.

    Args:
        level: The least level of the log. Requests are of level info, those of quiet routes of level debug.
        style: console for people, json for machines, auto by whether stderr is a terminal. For people, a line is
            written at once.
    """

    def __init__(self, level: str, style: Literal["auto", "console", "json"]) -> None:
        self._written, self._quiet_written = level in ("debug", "info"), level == "debug"
        self._people = structlog.get_logger("murho.access") if for_people(style) else None
        self._lines: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None

    def write(self, facts: Mapping[str, str | float | None], *, quiet: bool = False) -> None:
        """Write a line, at once or a little later.

        Args:
            facts: What it says.
            quiet: Whether machines ask for this every few seconds.
        """
        if not (self._quiet_written if quiet else self._written):
            return
        if self._people is not None:
            self._people.info("request", **facts)
            return
        level = "debug" if quiet else "info"
        said = {"event": "request", "level": level, "timestamp": datetime.now(UTC)}
        try:
            line = orjson.dumps({**facts, **said}, option=orjson.OPT_UTC_Z)
        except orjson.JSONEncodeError:  # half a character
            line = b"\\"
        if b"\\" in line or not line.decode().isprintable():
            line = orjson.dumps({**escape_texts(facts), **said}, str, orjson.OPT_UTC_Z)
        self._lines.append(line)
        if len(self._lines) >= FLUSH_LINES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Write the lines that wait. A full disk loses them; it stops no request."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._lines:
            return
        piece = b""
        for line in [*self._lines, b""]:
            if piece and (not line or len(piece) + len(line) >= WHOLE_BYTES):
                Stderr().write(piece.decode(errors="replace"))
                Stderr().flush()
                piece = b""
            piece += line + b"\n"
        self._lines.clear()


class Paths:
    """Asks every request for its key, calls some routes itself, and hands everything else on.

    The framework's own way to a route takes longer than a row's answer. So the routes of predictions are called from
    here, and those that machines ask often, and most impatiently while the service is busy. They take the request
    and the parts. The framework has them, too: for OpenAPI, for HEAD, and to refuse other methods.

    The caller is in the scope's state as `caller`, before a route is found and before any of the body is read. A
    request whose caller is there already has been admitted by whoever put it there.

    Args:
        app: Gets everything else.
        service: The parts of the service.
        routes: Those that are called from here.
    """

    def __init__(self, app: ASGIApp, service: ServiceContext, routes: Iterable[BaseRoute]) -> None:
        self.app, self.service = app, service
        self.routes = [route for route in routes if isinstance(route, APIRoute)]
        self.find = lru_cache(1024)(self._find)

    def _find(self, method: str, path: str) -> tuple[APIRoute, dict[str, str]] | None:
        """Return the route of a request and what is in its path; None if the framework has to look for it."""
        for route in self.routes:
            if method in (route.methods or ()) and (match := route.path_regex.fullmatch(path)) is not None:
                return route, match.groupdict()
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state = scope["state"]
        try:
            if "caller" not in state:
                client = scope.get("client")
                security, address = self.service.security, client[0] if client else "unknown"
                state["caller"] = security.authenticate(scope["path"], scope["headers"], address)
            if (found := self.find(scope["method"], scope["path"])) is not None:
                route, scope["path_params"] = found
                state["route"] = route.path
                response = await route.endpoint(Request(scope, receive), self.service)
            else:
                # HEAD is GET; the server, which has the scope, leaves out the body.
                routed = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
                try:
                    await self.app(routed, receive, send)
                finally:
                    state["route"] = getattr(routed.get("route"), "path", UNMATCHED)
                return
        except MurhoError as error:
            response = problem_response(error, scope)
            if response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
                raise  # `RequestLog` says why
        await response(scope, receive, send)


PARSED = frozenset(
    {
        *(b"accept", b"accept-encoding", b"content-type", b"content-encoding", b"content-length", b"if-none-match"),
        *(b"host", b"origin", b"sec-fetch-site", b"access-control-request-method", b"access-control-request-headers"),
        *(b"x-forwarded-for", b"x-request-id", b"x-request-timeout", b"inference-header-content-length"),
        *(b"traceparent", b"tracestate", b"range", b"if-range", b"if-modified-since"),
    }
)
"""Headers that somebody takes apart in the event loop. Cookies are another one: the framework reads them, in a time
that grows with the square of their length, and nobody needs them."""
MOST_PARSED_BYTES = 1024
MOST_PARAMETERS = 100
OF_METRICS_PORT = frozenset({"/metrics", "/healthz", "/readyz"})
READING = frozenset({"GET", "HEAD", "OPTIONS"})
AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@/?#\s]+))(?::[0-9]*)?")


class FrontDoor:
    """Refuses requests by their headers, before anything else looks at them; `RequestLog` asks it, and answers.

    Args:
        settings: The names and the origins, and where the service listens.
        keyless: Whether the service has no API keys.
    """

    def __init__(self, settings: Settings, *, keyless: bool) -> None:
        self._hosts, self._origins = settings.hosts, frozenset(settings.cors_origins)
        # Of pages: without keys `*` would let those of strangers change something.
        self._names = tuple(host for host in settings.hosts if host != "*" or not keyless)
        self._root, self._metrics_port = settings.root_path, settings.metrics_port
        self._settings = settings
        address = _address(settings.host)
        # On all interfaces nobody can say by which names the service is known: in a container, behind a balancer.
        self._guess = keyless and not (address is not None and address.is_unspecified)
        self._knows = lru_cache(1024)(self._is_own)

    def check(self, scope: Scope) -> None:
        """Check a request, and take away its cookies and the path below which a proxy shows the service.

        Raises:
            TooManyConnectionsError: The connection is one too many.
            HTTPException: The path is of another port.
            HeadersTooLargeError, TargetTooLongError: The headers or the target are above a limit, or would take long to
                read.
            MisdirectedError: The request is to a name that isn't this service's.
            ForeignPageError: A page of another site wants to change something.
        """
        settings = self._settings
        if "refused" in scope["state"]:
            raise TooManyConnectionsError("The service has all connections that it takes. Try again.", retry_after=1)
        if len(scope["query_string"]) + len(scope.get("raw_path") or b"") > settings.max_target_bytes:
            raise TargetTooLongError(
                f"Path and query are longer than {settings.max_target_bytes} bytes. Send options in the body."
            )
        size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size > settings.max_header_bytes or len(scope["headers"]) > settings.max_headers:
            raise HeadersTooLargeError(
                f"This service takes at most {settings.max_headers} headers, with {settings.max_header_bytes} bytes in "
                "all."
            )
        if self._root and f"{scope['path']}/".startswith(f"{self._root}/"):
            scope["path"] = scope["path"].removeprefix(self._root) or "/"
        if self._metrics_port is not None:
            for_machines = (scope.get("server") or ("", 0))[1] == self._metrics_port
            if scope["path"] not in OF_METRICS_PORT if for_machines else scope["path"] == "/metrics":
                raise HTTPException(HTTPStatus.NOT_FOUND)
            if for_machines:
                scope["state"]["caller"] = Caller("the port of metrics")
        said: dict[str, str] = scope["state"]["headers"]
        for name, value in scope["headers"]:
            if len(value) > MOST_PARSED_BYTES and name in PARSED:
                raise HeadersTooLargeError(
                    f"The header {name.decode()} has {len(value)} bytes; this service reads at most "
                    f"{MOST_PARSED_BYTES}."
                )
        if "cookie" in said:
            scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"cookie"]
        if scope["query_string"].count(b"&") >= MOST_PARAMETERS:
            raise TargetTooLongError(f"The query has more than {MOST_PARAMETERS} parameters.")
        host = said.get("host", "")
        if "host" in said and not self._knows(host, (scope.get("server") or ("",))[0]):  # browsers never leave it out
            raise MisdirectedError(
                f"This service isn't known as {host[:80]!r}. It answers to localhost, to its address and to the names "
                "in its setting hosts (MURHO_HOSTS)."
            )
        from_page = "origin" in said or "sec-fetch-site" in said  # other clients say nothing of origins
        if from_page and scope["method"] not in READING and self._is_foreign(said, host):
            raise ForeignPageError(
                "A page of another site may not ask this. If it should, name its origin in the setting cors_origins "
                "(MURHO_CORS_ORIGINS)."
            )

    def _is_own(self, authority: str, listening: str) -> bool:
        """Return whether a host is this service; so is the address of the connection, as Kubernetes' probes ask."""
        server, name = _address(listening), _name(authority)
        if not self._hosts and not (self._guess and server is not None and server.is_loopback):
            return True
        if name == "localhost" or name.endswith(".localhost"):
            return True
        address = _address(name)
        if address is not None and (address.is_loopback or address == server):
            return True
        return _is_among(name, self._hosts)

    def _is_foreign(self, said: dict[str, str], host: str) -> bool:
        """Return whether a page of another origin sent a request."""
        origin = said.get("origin", "")
        if origin in self._origins or (origin and "*" in self._origins):
            return False
        if site := said.get("sec-fetch-site"):  # the browser compared, whatever a proxy has made of Host
            return site not in {"same-origin", "none"}
        scheme, _, authority = origin.partition("://")
        own = host.lower().removesuffix(":443" if scheme == "https" else ":80")
        return bool(origin) and authority.lower() != own and not _is_among(_name(authority), self._names)


def _is_among(name: str, hosts: Sequence[str]) -> bool:
    """Return whether a name is one of some patterns of names; none is nobody's."""
    return bool(name) and any(fnmatchcase(name, host) for host in hosts)


def _name(authority: str) -> str:
    """Return the name or address of a host with or without its port, in small letters; nothing for what is none."""
    found = AUTHORITY.fullmatch(authority)
    return (found[1] or found[2]).lower().removesuffix(".") if found else ""


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address; of an IPv4 address in IPv6's form, the former; None for a name."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def share_with(origins: Sequence[str], app: ASGIApp) -> ASGIApp:
    """Return an application whose answers the pages of some origins may read, and which tells browsers so."""
    return CORSMiddleware(
        app,
        allow_origins=tuple(origins),
        allow_methods=("GET", "HEAD", "POST"),
        allow_headers=("*",),
        expose_headers=(
            *("x-request-id", "retry-after", "inference-header-content-length", "server-timing", "traceparent"),
        ),
    )


def behind_proxies(proxies: Sequence[str], app: ASGIApp) -> ASGIApp:
    """Return an application that takes the client from X-Forwarded-For where a proxy of these networks sends it.

    The client is the last address there that is no such proxy's: what comes before it, anybody can write.
    """
    networks = [ip_network(proxy) for proxy in proxies]
    # An address of IPv4, as a socket for both IPv4 and IPv6 sees it.
    mapped = [f"::ffff:{each.network_address}/{96 + each.prefixlen}" for each in networks if each.version == 4]
    return cast("ASGIApp", ProxyHeadersMiddleware(cast("Any", app), [*map(str, networks), *mapped]))
