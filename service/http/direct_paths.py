"""ASGI middleware that answers predictions itself: the framework's own way to a route takes longer than a row's answer.

Each protocol says which paths are its own (`find` of `routes.predict`, `routes.v2` and `routes.invocations`). So does
`routes.health`, which machines ask often, and most impatiently while the service is busy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias

from starlette.types import Receive, Scope

from murho.model.errors import MurhoError
from murho.service.errors import QueueFullError
from murho.service.http.loop_pauses import LoopPauses
from murho.service.http.responses import problem_response
from murho.service.parts import Parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.responses import Response
    from starlette.types import ASGIApp, Send

__all__ = ["Answering", "DirectPaths", "Found"]

Answering: TypeAlias = Callable[[Parts, Scope, Receive], Awaitable["Response"]]
"""Answers a request, or raises a `MurhoError`."""
Found: TypeAlias = tuple[str, Answering]
"""The template of a route, for log and metrics, and what answers it."""


class DirectPaths:
    """Answers requests to some paths, and hands everything else on.

    Args:
        app: Gets everything else.
        parts: The parts of the service.
        find: For a method of HTTP, functions from a path to what answers it.
    """

    def __init__(self, app: ASGIApp, parts: Parts, find: Mapping[str, Sequence[Callable[[str], Found | None]]]) -> None:
        self.app = app
        self.parts = parts
        self.find = find
        self._pauses = LoopPauses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        found = self._found(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self.app(scope, receive, send)
            return
        scope["state"]["route"], answer = found
        try:
            response = await answer(self.parts, scope, receive)
        except MurhoError as error:
            response = problem_response(error, scope)
            if isinstance(error, QueueFullError):
                self._pauses.refused()
            if response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
        await response(scope, receive, send)

    def _found(self, method: str, path: str) -> Found | None:
        for find in self.find.get(method, ()):
            if (found := find(path)) is not None:
                return found
        return None
