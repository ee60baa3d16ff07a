from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.service.security.callers import Buckets


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_the_rate() -> None:
    clock = Clock()
    buckets = Buckets(clock=clock)
    assert [buckets.take("a", 1, rate=2, burst=3) for _ in range(3)] == [0, 0, 0]
    assert buckets.take("a", 1, rate=2, burst=3) == pytest.approx(0.5)
    clock.now += 0.5
    assert buckets.take("a", 1, rate=2, burst=3) == 0
    assert buckets.take("b", 1, rate=2, burst=3) == 0


def test_what_is_larger_than_the_bucket_is_paid_for_afterwards() -> None:
    clock = Clock()
    buckets = Buckets(clock=clock)
    assert buckets.take("a", 100, rate=10, burst=20) == 0
    assert buckets.take("a", 1, rate=10, burst=20) == pytest.approx(8.1)
    clock.now += 8.1
    assert buckets.take("a", 1, rate=10, burst=20) == 0


def test_callers_are_bounded() -> None:
    clock = Clock()
    buckets = Buckets(clock=clock, sets=1)
    for caller in "abcdefghi":
        clock.now += 0.01
        assert buckets.take(caller, 1, rate=1, burst=1) == 0
    assert buckets.take("i", 1, rate=1, burst=1) > 0
    assert buckets.take("b", 1, rate=1, burst=1) > 0
    assert buckets.take("a", 1, rate=1, burst=1) == 0  # the one that asked longest ago was forgotten


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0.01, 50)), max_size=60))
def test_nobody_gets_more_than_the_rate(steps: list[tuple[float, float]]) -> None:
    clock = Clock()
    buckets = Buckets(clock=clock)
    begin, taken, last = clock.now, 0.0, 0.0
    for seconds, amount in steps:
        clock.now += seconds
        wait = buckets.take("a", amount, rate=5, burst=10)
        if wait == 0:
            taken, last = taken + amount, amount
        else:
            clock.now += wait
            assert buckets.take("a", amount, rate=5, burst=10) == 0
            taken, last = taken + amount, amount
    # All but the last is paid for, beyond the burst.
    assert taken - last <= 10 + 5 * (clock.now - begin) + 1e-6
