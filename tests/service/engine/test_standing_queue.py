from __future__ import annotations

import pytest

from murho.service.engine.standing_queue import STANDING_SECONDS, StandingQueue


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_may_be_long() -> None:
    clock = Clock()
    queue = StandingQueue(0.5, clock)
    for _ in range(100):
        queue.add(object(), 0.04)
    clock.now += 0.99 * STANDING_SECONDS
    assert len(queue) == 100
    assert queue.seconds == pytest.approx(4.0)
    assert not queue.too_long


def test_a_queue_that_was_not_empty_for_long_must_be_short() -> None:
    clock = Clock()
    queue = StandingQueue(0.5, clock)
    jobs = [object() for _ in range(100)]
    for job in jobs:
        queue.add(job, 0.04)
    clock.now += STANDING_SECONDS
    assert queue.standing == STANDING_SECONDS
    for job in jobs[:88]:
        assert queue.too_long
        queue.remove(job)
    assert not queue.too_long  # 12 of them take 0.48 s


def test_an_empty_queue_begins_anew() -> None:
    clock = Clock()
    queue = StandingQueue(0.5, clock)
    first, second = object(), object()
    queue.add(first, 1.0)
    clock.now += 2 * STANDING_SECONDS
    assert queue.too_long
    queue.remove(first)
    queue.remove(first)
    assert (queue.seconds, queue.standing, queue.too_long) == (0.0, 0.0, False)
    queue.add(second, 1.0)
    assert not queue.too_long
