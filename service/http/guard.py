"""Security as ASGI middleware and as FastAPI dependencies: nobody reaches a route, or sends a body, without a key."""

from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Request

from murho.service.errors import ServiceError
from murho.service.http.responses import problem_response
from murho.service.parts import PartsDependency
from murho.service.security.callers import Caller, Security, always_open

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["AdminDependency", "CallerDependency", "Guard", "client_of"]


def client_of(scope: "Scope") -> str:
    """Returns the address of a client, without its port; "unknown" for a socket that has none."""
    client = scope.get("client")
    return client[0] if client else "unknown"


class Guard:
    """Asks every request for its key, before a route is found and before any of the body is read.

    The caller is in the scope's state as `caller`, also on open paths. A request whose caller is there already has been
    admitted by whoever put it there.
    """

    def __init__(self, app: "ASGIApp", security: Security) -> None:
        self.app = app
        self.security = security

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Handles one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        if "caller" not in state:
            try:
                state["caller"] = self._admit(scope)
            except ServiceError as error:
                await problem_response(error, scope)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _admit(self, scope: "Scope") -> Caller:
        client, path = client_of(scope), scope["path"]
        if always_open(path):
            return Caller(client)
        # On a path that is open by a setting nobody is asked who they are.
        open_by_setting = self.security.enabled and self.security.is_open(path)
        caller = Caller(client) if open_by_setting else self.security.caller_of(scope["headers"], client)
        self.security.admit(caller)
        return caller


async def _caller(request: Request) -> Caller:  # async: the framework runs plain functions in a thread
    return cast("Caller", request.scope["state"]["caller"])


async def _admin(parts: PartsDependency, caller: "CallerDependency") -> Caller:
    parts.security.require_admin(caller)
    return caller


CallerDependency = Annotated[Caller, Depends(_caller)]
"""Who sent the request."""
AdminDependency = Annotated[Caller, Depends(_admin)]
"""Who sent the request, with a key that may load and unload models: other keys are answered 403."""
