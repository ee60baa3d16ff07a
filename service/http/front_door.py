"""Who may ask: the names that are answered, the pages of browsers, the sizes of headers; callers with their keys.

A browser runs pages of strangers beside a service that only its machine reaches. The same-origin policy keeps such a
page from reading answers, not from sending requests. And it compares names: a page of evil.example reads everything
once that name leads to 127.0.0.1 (DNS rebinding). So a service without keys on a loopback address answers to names of
its own machine alone, and a page of another site changes nothing anywhere.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import Depends, Request
from starlette.middleware.cors import CORSMiddleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from murho.service.errors import (
    ForeignPageError,
    HeadersTooLargeError,
    MisdirectedError,
    TargetTooLongError,
)
from murho.service.parts import PartsDependency  # noqa: TC001 - the framework reads the annotation
from murho.service.security.callers import Caller, always_open

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Scope

    from murho.service.security.callers import Security
    from murho.service.settings import Settings

__all__ = [
    "PARSED",
    "AdminDependency",
    "FrontDoor",
    "admitted",
    "behind_proxies",
    "client_of",
    "shared_with",
]

PARSED = frozenset(
    {
        *(b"accept", b"accept-encoding", b"content-type", b"content-encoding", b"content-length", b"if-none-match"),
        *(b"host", b"origin", b"sec-fetch-site", b"access-control-request-method", b"access-control-request-headers"),
        *(b"x-forwarded-for", b"x-request-id", b"x-request-timeout", b"inference-header-content-length"),
        *(b"traceparent", b"tracestate"),
    }
)
"""Headers that somebody takes apart in the event loop. Cookies are another one: the framework reads them, in a time
that grows with the square of their length, and nobody needs them."""
MOST_PARSED_BYTES = 1024
MOST_PARAMETERS = 100
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
        address = _address(settings.host)
        # On all interfaces nobody can say by which names the service is known: in a container, behind a balancer.
        self._guess = keyless and not (address is not None and address.is_unspecified)

    def check(self, scope: Scope) -> None:
        """Checks a request, and takes its cookies away.

        Raises:
            HeadersTooLargeError, TargetTooLongError: A header or the query would take long to read.
            MisdirectedError: The request is to a name that isn't this service's.
            ForeignPageError: A page of another site wants to change something.
        """
        said: dict[bytes, bytes] = {}
        cookies = False
        for name, value in scope["headers"]:
            if name in PARSED:
                if len(value) > MOST_PARSED_BYTES:
                    raise HeadersTooLargeError(
                        f"The header {name.decode()} has {len(value)} bytes; this service reads at most "
                        f"{MOST_PARSED_BYTES}."
                    )
                said[name] = value
            elif name == b"cookie":
                cookies = True
        if cookies:
            scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"cookie"]
        if scope["query_string"].count(b"&") >= MOST_PARAMETERS:
            raise TargetTooLongError(f"The query has more than {MOST_PARAMETERS} parameters.")
        host = said.get(b"host", b"").decode("latin-1")
        server = _address((scope.get("server") or ("",))[0])
        checked = self._hosts or (self._guess and server is not None and server.is_loopback)
        if checked and b"host" in said and not self._is_own(_name(host), server):  # browsers never leave it out
            raise MisdirectedError(
                f"This service isn't known as {host[:80]!r}. It answers to localhost, to its address and to the names "
                "in its setting hosts (MURHO_HOSTS)."
            )
        if scope["method"] not in READING and self._is_foreign(said, host):
            raise ForeignPageError(
                "A page of another site may not ask this. If it should, name its origin in the setting cors_origins "
                "(MURHO_CORS_ORIGINS)."
            )

    def _is_own(self, name: str, server: IPv4Address | IPv6Address | None) -> bool:
        """Returns whether a name is this service's; so is the address of the connection, as Kubernetes' probes ask."""
        if name == "localhost" or name.endswith(".localhost"):
            return True
        address = _address(name)
        if address is not None and (address.is_loopback or address == server):
            return True
        return any(fnmatchcase(name, host) for host in self._hosts)

    def _is_foreign(self, said: dict[bytes, bytes], host: str) -> bool:
        """Returns whether a page of another origin sent a request; other clients say nothing of origins."""
        origin = said.get(b"origin", b"").decode("latin-1")
        if origin in self._origins or (origin and "*" in self._origins):
            return False
        if site := said.get(b"sec-fetch-site"):  # the browser compared, whatever a proxy has made of Host
            return site not in {b"same-origin", b"none"}
        scheme, _, authority = origin.partition("://")
        own = host.lower().removesuffix(":443" if scheme == "https" else ":80")
        return bool(origin) and authority != own and authority not in self._hosts


@lru_cache(1024)
def _name(authority: str) -> str:
    """Returns the name or address of a host with or without its port, in small letters; nothing for what is none."""
    found = AUTHORITY.fullmatch(authority)
    return (found[1] or found[2]).lower().removesuffix(".") if found else ""


@lru_cache(1024)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Returns an IP address; of an IPv4 address in IPv6's form, the former; None for a name."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def shared_with(origins: Sequence[str], app: ASGIApp) -> ASGIApp:
    """Returns an application whose answers the pages of some origins may read, and which tells browsers so."""
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
    """Returns an application that takes the client from X-Forwarded-For where a proxy of these networks sends it.

    The client is the last address there that is no such proxy's: what comes before it, anybody can write.
    """
    networks = [ip_network(proxy) for proxy in proxies]
    # An address of IPv4, as a socket for both IPv4 and IPv6 sees it.
    mapped = [f"::ffff:{each.network_address}/{96 + each.prefixlen}" for each in networks if each.version == 4]
    return cast("ASGIApp", ProxyHeadersMiddleware(cast("Any", app), [*map(str, networks), *mapped]))


def client_of(scope: Scope) -> str:
    """Returns the address of a client, without its port; "unknown" for a socket that has none."""
    client = scope.get("client")
    return client[0] if client else "unknown"


def admitted(security: Security, scope: Scope) -> Caller:
    """Returns who sent a request, which counts for its limit.

    Raises:
        UnauthorizedError, RateLimitError: The request has no key, or the caller asks too much.
    """
    client, path = client_of(scope), scope["path"]
    if always_open(path):
        return Caller(client)
    # On a path that is open by a setting nobody is asked who they are.
    open_by_setting = security.enabled and security.is_open(path)
    caller = Caller(client) if open_by_setting else security.caller_of(scope["headers"], client)
    security.admit(caller)
    return caller


async def _admin(request: Request, parts: PartsDependency) -> Caller:  # async: plain functions run in a thread
    caller: Caller = request.scope["state"]["caller"]
    parts.security.require_admin(caller)
    return caller


AdminDependency = Annotated[Caller, Depends(_admin)]
"""Who sent the request, with a key that may load and unload models: other keys are answered 403."""
