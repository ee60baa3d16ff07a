"""`AsyncClient`: the same as `Client`, for asyncio."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from murho_client import AsyncClient, Busy, InternalError, InvalidInput, UnexpectedAnswer, UnknownModel

from tests.client.stand_in import StandIn, problem

if TYPE_CHECKING:
    from murho_client import Prediction

ROWS = {"x": [1.0, 2.0, 3.0], "kind": ["a", "a", None]}


def client(service: StandIn, **options: Any) -> AsyncClient:
    async def respond(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)  # as a network does, it lets the others run
        return service(request)

    return AsyncClient("http://murho.test", transport=httpx.MockTransport(respond), **options)


def predict(service: StandIn, data: object = ROWS, /, *names: str, **options: Any) -> Prediction:
    """One prediction, by a client of its own."""

    async def run() -> Prediction:
        async with client(service, retries=2, max_rows_per_request=10, max_concurrency=3) as murho:
            return await murho.predict(data, *names, **options)

    return asyncio.run(run())


def test_a_prediction() -> None:
    service = StandIn()
    np.testing.assert_allclose(predict(service, ROWS, "line", seed=3).mean, [3, 5, 7])
    assert service.paths == ["/models/line", "/models/line/predict"]
    assert service.documents[0]["seed"] == 3


def test_models_and_readiness() -> None:
    async def run() -> None:
        async with client(StandIn()) as murho:
            assert await murho.ready()
            (listed,) = await murho.models()
            assert (listed.name, listed.target) == ("line", "y")
            assert (await murho.model("line")).name == listed.name
            with pytest.raises(UnknownModel):
                await murho.model("circle")
            assert repr(murho) == "AsyncClient('http://murho.test')"

    asyncio.run(run())


def test_large_tables_are_split_and_put_together_in_order() -> None:
    service, seen = StandIn(), []
    prediction = predict(
        service,
        {"x": np.arange(103.0), "kind": ["a"] * 103},
        progress=lambda done, total: seen.append((done, total)),
    )
    np.testing.assert_array_equal(prediction.mean, 2 * np.arange(103.0) + 1)
    assert len(service.documents) == 11
    assert seen[-1] == (103, 103)


def test_the_first_error_cancels_the_others_and_comes_alone() -> None:
    service = StandIn(lambda request: problem(500, "internal") if b"[20.0," in request.content else None)
    with pytest.raises(InternalError):
        predict(service, {"x": np.arange(1000.0), "kind": ["a"] * 1000})
    assert len(service.documents) < 50


def test_many_calls_at_a_time_share_one_client() -> None:
    async def run() -> None:
        async with client(StandIn()) as murho:
            answers = await asyncio.gather(*(murho.predict({"x": [float(i)], "kind": ["a"]}) for i in range(50)))
        assert [answer.mean[0] for answer in answers] == [2 * i + 1 for i in range(50)]

    asyncio.run(run())


def test_passing_failures_are_tried_again_and_lasting_ones_told() -> None:
    left = [2]

    def busy(request: httpx.Request) -> httpx.Response | None:
        left[0] -= request.method == "POST"
        return problem(429, "queue-full", "Full.", retry_after=0) if request.method == "POST" and left[0] >= 0 else None

    np.testing.assert_allclose(predict(StandIn(busy)).mean, [3, 5, 7])
    left[0] = 1000
    with pytest.raises(Busy, match=r"Full\. \(Tried 3 times in"):
        predict(StandIn(busy))


def test_errors_are_those_of_the_other_client() -> None:
    with pytest.raises(UnexpectedAnswer, match="no Murho service"):
        predict(StandIn(lambda _: httpx.Response(200, html="Hello")))
    with pytest.raises(InvalidInput, match="x"):
        predict(StandIn(), {"x": ["one"], "kind": ["a"]})
    begin = time.monotonic()
    with pytest.raises(Busy, match="Tried once"):
        predict(StandIn(lambda _: problem(429, "queue-full", retry_after=60)), timeout=20)
    assert time.monotonic() - begin < 20


def test_a_cancelled_call_ends_at_once() -> None:
    async def run() -> None:
        async def never(_: httpx.Request) -> httpx.Response:
            await asyncio.sleep(60)
            raise AssertionError

        async with AsyncClient("http://murho.test", transport=httpx.MockTransport(never)) as murho:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await murho.predict(ROWS)

    begin = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - begin < 30
