"""Tests of `murho.ray.asgi`: what Ray Serve runs in a replica, here without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from murho.ray.asgi import ReplicaApp
from murho.service.settings import Settings
from tests.support import ROOT

ROW = {"sqm": 80.0, "rooms": 3, "city": "Bern", "parking": "yes", "listed": "2021-05-01"}


def in_replica(act: Callable[[ReplicaApp], Awaitable[None]]) -> list[str]:
    """Start and stop an application as Ray Serve does; return the messages of its lifespan."""
    app = ReplicaApp(Settings(checkpoints=ROOT / "tests" / "fixtures" / "checkpoints", threads=1, device="cpu"))
    sent: list[str] = []

    async def run() -> None:
        asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        started = asyncio.Event()

        async def send(message: Any) -> None:
            sent.append(message["type"])
            started.set()

        lifespan = asyncio.create_task(app({"type": "lifespan"}, asked.get, send))
        await asked.put({"type": "lifespan.startup"})
        await started.wait()
        await act(app)
        await asked.put({"type": "lifespan.shutdown"})
        await lifespan

    asyncio.run(run())
    return sent


def test_a_replica_is_started_once_its_checkpoints_answer_also_below_a_prefix() -> None:
    async def ask(app: ReplicaApp) -> None:
        for root in ("", "/murho"):
            transport = httpx.ASGITransport(app=app, root_path=root)
            async with httpx.AsyncClient(transport=transport, base_url="http://replica") as client:
                assert (await client.get(f"{root}/readyz")).status_code == 200
                answer = await client.post(f"{root}/predict", json={"inputs": [ROW], "samples": 8})
                assert answer.json()["model"] == {"name": "rents", "version": "1"}
                assert (await client.get(f"{root}/models/nothing")).status_code == 404
        assert app.service.engine.admission.pending_cost == 0

    assert in_replica(ask) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
