"""The yardsticks: rates of matrix products and of copies."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from benchmarks.engine_parts import machine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is timed takes 3, 1 and 2 seconds."""

    def times() -> Iterator[float]:
        now = 0.0
        for seconds in (3.0, 1.0, 2.0):
            yield now
            now += seconds
            yield now

    ticks = times()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))


def test_the_rate_of_products_is_the_best_of_its_repeats(clock: None) -> None:
    assert machine.product_rate(10, repeats=3) == 2.0 * 10**3


def test_the_rate_of_copies_counts_reading_and_writing(clock: None) -> None:
    assert machine.copy_rate(4096, repeats=3) == 2.0 * 4096
