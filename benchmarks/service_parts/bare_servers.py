"""Bare servers to compare with: a FastAPI route, a pure ASGI application, and bytes without any HTTP framework.

``python -m benchmarks.service_parts.bare_servers fastapi|asgi|fixed --port P --model DIR --answer FILE`` answers every
POST with the content of the file.

``fastapi`` checks the body with a pydantic model of the same shape as Murho's requests: rows with the features of a
checkpoint, and the options. ``asgi`` reads the body and does not look at it. ``fixed`` answers each piece of data that
arrives: no server answers sooner, so it shows what the load generator itself can do.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import uvicorn
import uvloop
from fastapi import FastAPI, Response
from pydantic import BaseModel, ConfigDict, Field, create_model

from murho.model.tables.schema import FeatureKind, Schema

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["asgi_app", "fastapi_app", "main", "request_model"]

TYPES: dict[FeatureKind, Any] = {
    FeatureKind.NUMERIC: float | None,
    FeatureKind.BOOLEAN: bool | None,
    FeatureKind.CATEGORICAL: str | int | float | None,
    FeatureKind.DATE: str | None,
}


def request_model(schema: Schema) -> type[BaseModel]:
    """A pydantic model of a request: records with the schema's features, and the options."""
    fields: dict[str, Any] = {
        f"feature_{number}": (TYPES[feature.kind], Field(alias=feature.name))
        for number, feature in enumerate(schema.features)
    }
    row = create_model("Row", __config__=ConfigDict(extra="forbid"), **fields)
    options: dict[str, Any] = {
        "inputs": (list[row], Field(min_length=1)),  # type: ignore[valid-type]
        "samples": (int, Field(256, ge=0, le=4096)),
        "percentiles": (list[float], [5.0, 50.0, 95.0]),
        "seed": (int | None, None),
        "noise": (bool, True),
        "calibrated": (bool, True),
        "thresholds": (list[float], []),
        "include": (list[str], []),
    }
    return create_model("Request", __config__=ConfigDict(extra="forbid"), **options)


def fastapi_app(schema: Schema, answer: bytes) -> FastAPI:
    """A route that checks the body by `request_model`, and answers the bytes."""
    app = FastAPI()
    body_model = request_model(schema)

    async def predict(body: Any) -> Response:  # noqa: ARG001 - checked, not used
        return Response(answer, media_type="application/json")

    predict.__annotations__["body"] = body_model
    app.post("/predict")(predict)
    return app


def asgi_app(answer: bytes) -> Callable[[Any, Any, Any], Awaitable[None]]:
    """An application that reads the body, and answers the bytes."""
    length = str(len(answer)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return app


class _Fixed(asyncio.Protocol):
    """Answers every piece of data with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer)
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, _: bytes) -> None:
        self._transport.write(self._answer)


async def _serve_fixed(answer: bytes, port: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Fixed(answer), "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("kind", choices=["fastapi", "asgi", "fixed"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", type=Path, required=True, help="directory of a checkpoint's version")
    parser.add_argument("--answer", type=Path, required=True)
    given = parser.parse_args()
    answer = given.answer.read_bytes()
    if given.kind == "fixed":
        uvloop.run(_serve_fixed(answer, given.port))
        return
    schema = Schema.from_json(orjson.loads((given.model / "model.json").read_bytes())["schema"], "schema")
    app: Any = asgi_app(answer) if given.kind == "asgi" else fastapi_app(schema, answer)
    lifespan: Any = "off" if given.kind == "asgi" else "auto"
    config: dict[str, Any] = {
        "loop": "uvloop",
        "http": "httptools",
        "access_log": False,
        "log_level": "warning",
        "ws": "none",
    }
    uvicorn.run(app, port=given.port, lifespan=lifespan, **config)


if __name__ == "__main__":
    main()
