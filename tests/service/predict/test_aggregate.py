"""What totals may take: work, memory, time and turns."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from murho.service.predict.codec_threads import THREADS
from tests.service.support import ROW, FakeModel, make_client, pointers

GROUPS: dict[str, Any] = {"inputs": [ROW] * 100, "groups": list(range(100)), "samples": 10}
LEVELS = {"percentiles": list(range(1, 100))}


def test_totals_cost_groups_times_samples_times_levels() -> None:
    with make_client(FakeModel(), max_pending_cost=20_000) as client:
        assert client.post("/aggregate", GROUPS).status_code == 200
        assert client.post("/aggregate", GROUPS | LEVELS | {"groups": [0] * 100}).status_code == 200
        refused = client.post("/aggregate", GROUPS | LEVELS)
        assert pointers(refused, 413) == []
        assert "100000 row-draws" in refused.json()["detail"]
        exact = {"inputs": [ROW] * 200, "statistic": "count_above", "threshold": 130.0, "samples": 50}
        assert pointers(client.post("/aggregate", exact), 413) == []
        assert client.state["service"].engine.admission.pending_cost == 0.0


def test_a_caller_pays_for_totals() -> None:
    with make_client(FakeModel(), row_draws_per_second=2_000.0) as client:
        assert client.post("/aggregate", GROUPS).status_code == 200
        assert client.post("/aggregate", GROUPS | LEVELS).status_code in (413, 429)


def test_totals_take_memory_or_wait_for_it_until_their_deadline() -> None:
    with make_client(FakeModel()) as client:
        budget = client.state["service"].totals_budget
        budget.take(budget.most)
        assert client.post("/aggregate", GROUPS | {"timeout": 0.3}).status_code == 504
        budget.take(-budget.most)
        assert client.post("/aggregate", GROUPS).status_code == 200
        assert budget.taken == 0


@pytest.mark.parametrize("path", ["/predict", "/aggregate"])
def test_work_in_threads_waits_until_the_deadline(path: str) -> None:
    with make_client(FakeModel()) as client:
        threads, free = client.state["service"].codec_threads, threading.Event()
        client.portal.call(lambda: [threads.submit("others", free.wait) for _ in range(THREADS)])
        try:
            large = client.post(path, {"inputs": [ROW] * 300}, headers={"x-request-timeout": "0.3"})
        finally:
            free.set()
        assert large.status_code == 504
        assert client.post(path, {"inputs": [ROW] * 300}).status_code == 200


def test_flows_take_turns() -> None:
    with make_client(FakeModel()) as client:
        threads, events, order = (
            client.state["service"].codec_threads,
            [threading.Event() for _ in range(THREADS)],
            list[str](),
        )

        async def some() -> None:
            busy = [threads.submit("others", event.wait) for event in events]
            done = [threads.submit(name[0], lambda name=name: order.append(name)) for name in ("a1", "a2", "a3", "b1")]
            events[0].set()
            await asyncio.gather(*done)
            for event in events:
                event.set()
            await asyncio.gather(*busy)

        client.portal.call(some)
        assert order == ["a1", "b1", "a2", "a3"]


def test_whole_numbers_that_a_feature_does_not_hold_are_grouped_by_labels() -> None:
    numbers = [2**53, 2**53 + 1, 2**53]
    rows = [ROW | {"Weight": number} for number in numbers]
    with make_client(FakeModel()) as client:
        refused = client.post("/aggregate", {"inputs": rows, "by": ["Weight"], "samples": 10})
        assert pointers(refused, 422) == ["/by"]
        assert "send a label for each row in groups" in refused.text
        told = client.post("/aggregate", {"inputs": rows, "groups": numbers, "samples": 10}).json()
        assert (told["groups"], told["rows"]) == ([[2**53], [2**53 + 1]], [2, 1])
        small = client.post("/aggregate", {"inputs": [ROW | {"Weight": 2**53 - 1}], "by": ["Weight"], "samples": 10})
        assert small.json()["groups"] == [[2**53 - 1]]
