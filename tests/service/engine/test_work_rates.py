from __future__ import annotations

import gc

import pytest

from murho.service.engine.work_rates import FIRST_SECONDS_PER_COST, LARGE, WorkRates
from tests.service.support import FakeModel


def test_the_rate_follows_what_was_measured() -> None:
    rates, model = WorkRates(), FakeModel()
    assert rates.seconds_per_cost(model) == FIRST_SECONDS_PER_COST
    rates.record(model, 1e6, 2.0)
    assert rates.seconds_per_cost(model) == pytest.approx(2e-6)
    for _ in range(100):
        rates.record(model, 1e6, 4.0)
    assert rates.seconds_per_cost(model) == pytest.approx(4e-6, rel=1e-3)


def test_small_passes_say_nothing_of_the_rate() -> None:
    rates, model = WorkRates(), FakeModel()
    rates.record(model, LARGE / 2, 1.0)
    assert rates.seconds_per_cost(model) == FIRST_SECONDS_PER_COST


def test_small_passes_correct_a_rate_that_is_too_slow() -> None:
    rates, model = WorkRates(), FakeModel()
    rates.record(model, 10 * LARGE, 20.0)  # the process stood still meanwhile
    for _ in range(100):
        rates.record(model, LARGE / 4, 0.002)
    assert rates.seconds_per_cost(model) == pytest.approx(0.002 / (LARGE / 4), rel=0.1)


def test_a_model_that_is_gone_is_forgotten() -> None:
    rates, model = WorkRates(), FakeModel()
    rates.record(model, 1e6, 1.0)
    del model
    gc.collect()
    assert not rates._seen
