"""HEAD where GET is: the same answer without its body."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HeadRequests"]


class HeadRequests:
    """ASGI middleware that asks the application for GET when the client asks for HEAD.

    The headers stay those of GET, the content-length among them. The server sees HEAD in its own scope, so that it
    sends no body; the application gets a copy.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        asked = {**scope, "method": "GET"}
        try:
            await self.app(asked, receive, send_without_body)
        finally:
            # Log and metrics look for the route in the scope that they handed on.
            if "route" in asked:
                scope["route"] = asked["route"]
