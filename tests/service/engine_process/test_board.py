"""What the processes of a service tell one another: the silence of one is seen by all."""

from __future__ import annotations

import pytest

from murho.service.engine_process.board import ENGINE, Board
from murho.service.errors import EngineSilentError


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_who_was_paused_does_not_take_the_silence_of_others_for_death() -> None:
    clock = Clock()
    board = Board(1, clock=clock)
    board.beat(1)
    for _ in range(61):
        clock.now += 1.0
        board.beat(ENGINE)
    assert board.silence(1) == 61.0
    clock.now += 100.0  # the machine was paused
    assert board.silence(1) == 0.0
    clock.now += 2.0
    assert board.silence(1) == 2.0
    board.beat(1)
    assert board.silence(1) == 0.0


def test_alive_means_the_engine_and_every_front_end() -> None:
    board = Board(2)
    for number in range(3):
        board.beat(number)
    board.require_alive(60.0)
    board.beat(ENGINE, 61.0)
    with pytest.raises(EngineSilentError, match="The engine has shown no sign of life for 61 seconds"):
        board.require_alive(60.0)
    board.bury(ENGINE)  # it is started again
    board.require_alive(60.0)


def test_what_is_pending_counts_over_all_front_ends_but_those_that_have_ended() -> None:
    board = Board(2)
    first, second = board.pending(1), board.pending(2)
    first.add(1, 10.0, 0.5)
    second.add(2, 30.0, 1.5)
    assert (first.requests, first.cost, second.seconds) == (3, 40.0, 2.0)
    second.add(-2, -29.999999, -1.5)
    assert (first.requests, first.cost) == (1, 10.0)
    second.add(1, 7.0, 0.0)
    board.bury(2)
    assert (first.requests, first.cost) == (1, 10.0)
