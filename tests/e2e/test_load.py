"""Many kinds of requests at once: nobody's answer depends on who else asks, and nobody's fault is another's."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.traffic import PROBLEM, Traffic, asks
from tests.service.support import ROW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from murho.model.checkpoint.posterior import Posterior
    from tests.e2e.support import Service

HOSTILE: dict[str, dict[str, Any]] = {
    "extreme levels": {"percentiles": [10.0 ** -(3 + number / 10) for number in range(100)]},
    "extreme levels from above": {"percentiles": [100.0 - 10.0 ** -(3 + number / 10) for number in range(100)]},
    "all samples": {"samples": 4096, "include": ["mc_error"]},
    "all draws": {"samples": 4096, "include": ["draws"]},
    "thresholds": {"thresholds": [float(number) for number in range(5000)]},
    "huge thresholds": {"thresholds": [1e308, -1e308, 5e-324]},
    "new seed": {"seed": 2**63 - 1, "samples": 4096},
    "everything": {
        "samples": 4096,
        "percentiles": [0.001, 99.999],
        "thresholds": [0.0],
        "include": ["draws", "mc_error"],
        "noise": False,
    },
}


def interleaved(*kinds: list[Any]) -> list[Any]:
    return list(chain.from_iterable(zip(*kinds, strict=True)))


def test_models_options_seeds_and_bad_rows_at_once_change_no_answer(
    busy: Service, posterior: Posterior, rents: Posterior
) -> None:
    mixed = interleaved(
        asks(posterior, 60, "/models/cars/predict", bad=0.2), asks(rents, 60, "/models/rents/predict", bad=0.2, seed=1)
    )
    with Traffic(busy.port, mixed, threads=15) as traffic:
        traffic.wait_for(2 * len(mixed))
    traffic.require()
    assert set(traffic.statuses) == {200, 422}


def numbers(node: object) -> Iterator[float]:
    if isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from numbers(child)
    elif isinstance(node, float):
        yield node


@pytest.mark.parametrize("options", HOSTILE.values(), ids=HOSTILE)
def test_hostile_options_get_finite_numbers_or_a_reason(busy: Service, options: dict[str, Any]) -> None:
    response = httpx.post(f"{busy.address}/predict", json={"inputs": [ROW] * 3, **options}, timeout=60.0)
    assert response.status_code in {200, 413, 422, 429, 503, 504}, response.text[:500]
    if response.status_code == 200:
        assert all(map(math.isfinite, numbers(response.json())))
    else:
        assert response.headers["content-type"] == PROBLEM
        assert response.json()["detail"]


@pytest.mark.slow
def test_small_requests_are_answered_rightly_amid_hostile_ones(busy: Service, posterior: Posterior) -> None:
    end = time.monotonic() + 20.0

    def attack(number: int) -> set[int]:
        statuses = set()
        with httpx.Client(base_url=busy.address, timeout=120.0) as client:
            while time.monotonic() < end:
                for options in HOSTILE.values():
                    number += 1000
                    body = {"inputs": [ROW] * 20, **options, "seed": number}
                    statuses.add(client.post("/predict", json=body).status_code)
        return statuses

    with ThreadPoolExecutor(4) as threads, Traffic(busy.port, asks(posterior, 30), threads=4) as traffic:
        statuses = set().union(*threads.map(attack, range(4)))
        traffic.wait_for(1)
    traffic.require("refused")
    assert statuses <= {200, 413, 422, 429, 503, 504}


@pytest.mark.slow
def test_one_row_does_not_wait_for_long_work(busy: Service, posterior: Posterior) -> None:
    heavy = {"inputs": [ROW] * 60_000, "samples": 1024, "percentiles": [0.001, 99.999]}
    with ThreadPoolExecutor(1) as threads:
        long = threads.submit(httpx.post, f"{busy.address}/predict", json=heavy, timeout=300.0)
        time.sleep(1.0)
        waits: list[float] = []
        while not long.done() and len(waits) < 10:
            begin = time.monotonic()
            assert httpx.post(f"{busy.address}/predict", json={"inputs": [ROW]}, timeout=120.0).status_code == 200
            waits.append(time.monotonic() - begin)
        assert long.result().status_code in {200, 504}
    assert waits
    assert max(waits) < 2.0
