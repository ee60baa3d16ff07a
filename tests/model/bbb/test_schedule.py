"""The schedule: a falling learning rate, a rising weight of the KL, and a faster pace under a budget."""

from __future__ import annotations

import itertools

import pytest

from murho.model.bbb.fit import FitOptions
from murho.model.bbb.optimisers import FINAL_LEARNING_RATE, FINAL_RATE_OF_PATH, Schedule


def test_the_learning_rate_falls_and_the_weight_of_the_kl_rises() -> None:
    schedule = Schedule(FitOptions(learning_rate=0.1, warm_up_steps=4, temperature=0.5), 10)
    rates, temperatures, warm = [], [], []
    while not schedule.done:
        rates.append(schedule.learning_rate)
        temperatures.append(schedule.temperature)
        warm.append(schedule.warm)
        schedule.step()
    assert len(rates) == 10
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == pytest.approx(0.1)
    assert schedule.learning_rate == pytest.approx(0.1 * FINAL_LEARNING_RATE)
    assert temperatures == pytest.approx([0.125, 0.25, 0.375] + [0.5] * 7)
    assert warm == [False] * 4 + [True] * 6


def test_a_rising_temperature_grows_by_the_same_ratio_each_step() -> None:
    schedule = Schedule(FitOptions(learning_rate=0.1, warm_up_steps=4, temperature=None), 10)
    rates, temperatures = [], []
    while not schedule.done:
        assert schedule.warm
        rates.append(schedule.learning_rate)
        temperatures.append(schedule.temperature)
        schedule.step()
    ratios = [after / before for before, after in itertools.pairwise(temperatures)]
    assert ratios == pytest.approx([100.0**0.1] * 9)
    assert temperatures[-1] == pytest.approx(1.0)
    assert rates == sorted(rates, reverse=True)
    assert schedule.learning_rate == pytest.approx(0.1 * FINAL_RATE_OF_PATH)


def test_under_a_budget_it_goes_through_in_the_steps_that_there_is_time_for() -> None:
    schedule = Schedule(FitOptions(budget=100.0), 1000)
    for _ in range(10):
        schedule.step()
    schedule.keep_within_budget(19.0)  # 76 seconds left of 95, at 1.9 seconds a step: 40 steps
    steps = 0
    while not schedule.done:
        schedule.step()
        steps += 1
    assert steps == 40


def test_a_fit_that_is_fast_enough_does_not_hurry() -> None:
    schedule = Schedule(FitOptions(budget=100.0), 20)
    for _ in range(10):
        schedule.step()
    schedule.keep_within_budget(19.0)
    for _ in range(9):
        schedule.step()
    assert not schedule.done


def test_the_share_done_goes_from_0_to_1() -> None:
    schedule = Schedule(FitOptions(), 4)
    shares = [schedule.share_done]
    for _ in range(5):
        schedule.step()
        shares.append(schedule.share_done)
    assert shares == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
