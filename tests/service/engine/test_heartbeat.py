from __future__ import annotations

import pytest

from murho.service.engine.heartbeat import Heartbeat
from murho.service.errors import EngineSilentError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_work_nobody_is_silent() -> None:
    clock = Clock()
    heart = Heartbeat(clock=clock)
    clock.now += 1000
    assert heart.seconds_silent() == 0
    heart.beat()
    clock.now += 1000
    assert heart.seconds_silent() == 0
    heart.busy()
    heart.idle()
    clock.now += 1000
    assert heart.seconds_silent() == 0


def test_with_work_silence_is_counted_from_the_last_beat() -> None:
    clock = Clock()
    heart = Heartbeat(clock=clock)
    heart.busy()
    clock.now += 5
    assert heart.seconds_silent() == 5
    heart.beat()
    clock.now += 2
    assert heart.seconds_silent() == 2
    heart.require_alive(2)
    clock.now += 1
    with pytest.raises(EngineSilentError, match="for 3 seconds; 2 are the most"):
        heart.require_alive(2)
