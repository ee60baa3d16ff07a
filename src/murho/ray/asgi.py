"""The service's application as Ray Serve runs it: ready means loaded, and paths are those of one process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from murho.service.app import create_app

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from murho.service.context import ServiceContext
    from murho.service.settings import Settings

STARTED = "lifespan.startup.complete"
SECONDS_BETWEEN_LOOKS = 0.05


class ReplicaApp:
    """An ASGI application around `murho.service.app.create_app`.

    - Its start-up ends when the checkpoints are loaded. Ray sends requests to a replica from then on, so that in a
      rolling update no request meets a replica that is not ready.
    - The state of the lifespan goes into every request, as a server such as uvicorn does it; Ray Serve does not.
    - The prefix of a route, as Ray calls it, is taken off the path.

    Args:
        settings: The settings of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self._app = create_app(settings)
        self._state: dict[str, Any] = {}

    @property
    def service(self) -> ServiceContext:
        """The parts of the service, once it is started."""
        return cast("ServiceContext", self._state["service"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the lifespan, or one request."""
        if scope["type"] == "lifespan":

            async def send_when_loaded(message: Message) -> None:
                while message["type"] == STARTED and not self.service.registry.snapshot.loaded:
                    await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
                await send(message)

            await self._app({**scope, "state": self._state}, receive, send_when_loaded)
            return
        root = scope.get("root_path", "")
        path = scope["path"].removeprefix(root) or "/"
        await self._app({**scope, "state": {**self._state}, "path": path, "root_path": ""}, receive, send)
