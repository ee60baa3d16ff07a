"""`AsyncClient`: the same as `Client`, for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from murho_client import (
    AsyncClient,
    Client,
    InternalError,
    InvalidInput,
    Prediction,
    UnknownModel,
)

from tests.client.stand_in import ROWS, StandIn, async_client, problem, table

if TYPE_CHECKING:
    from pathlib import Path


def predict(service: StandIn, data: object = ROWS, /, *names: str, **options: Any) -> Prediction:
    """One prediction, by a client of its own."""

    async def run() -> Prediction:
        async with async_client(service, retries=2, max_rows_per_request=10, max_concurrency=3) as murho:
            return await murho.predict(data, *names, **options)

    return asyncio.run(run())


def test_a_method_is_that_of_the_other_client_and_awaited() -> None:
    async def run() -> None:
        service = StandIn()
        async with async_client(service) as murho:
            assert await murho.ready()
            assert (await murho.model("line")).name == "line"
            with pytest.raises(UnknownModel):
                await murho.load("circle", "2")
            assert service.requests[-1].url.raw_path == b"/models/circle/load?version=2"
            await murho.with_options(headers={"X-Team": "a"}).request("GET", "/readyz")
            assert service.requests[-1].headers["x-team"] == "a"
            assert repr(murho) == "AsyncClient('http://murho.test')"

    asyncio.run(run())
    methods = [name for name in dir(Client) if not name.startswith("_") and name != "close"]
    assert all(inspect.iscoroutinefunction(getattr(AsyncClient, name)) for name in methods if name != "with_options")


def test_the_first_error_cancels_the_others_and_comes_alone() -> None:
    service = StandIn(lambda request: problem(500, "internal") if b"[20.0," in request.content else None)
    with pytest.raises(InternalError):
        predict(service, table(1000))
    assert len(service.documents) < 50


def test_a_file_is_predicted_while_the_loop_goes_on(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("x,kind\n" + "1.5,a\n" * 25)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def run() -> int:
        ticking = asyncio.create_task(tick())
        async with async_client(StandIn()) as murho:
            rows = await murho.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", rows_per_chunk=10)
            (tmp_path / "in.csv").write_text("x,kind\nmany,a\n")
            with pytest.raises(InvalidInput, match=r"in\.csv, line 2"):
                await murho.predict_file(tmp_path / "in.csv", tmp_path / "not.csv")
        ticking.cancel()
        return rows

    assert asyncio.run(run()) == 25
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 26
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]
    assert ticks > 10


def test_a_cancelled_call_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("x,kind\n1.5,a\n")

    async def run() -> None:
        async def never(_: httpx2.Request) -> httpx2.Response:
            await asyncio.sleep(60)
            raise AssertionError

        http = httpx2.AsyncClient(transport=httpx2.MockTransport(never))
        async with AsyncClient("http://murho.test", http_client=http) as murho:
            for call in (murho.predict(ROWS), murho.predict_file(tmp_path / "in.csv", tmp_path / "out.csv")):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await call

    begin = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - begin < 30
