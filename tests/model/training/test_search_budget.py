"""The budget of a search: the share of the next fit, in reference seconds or by the clock."""

from __future__ import annotations

import time

import pytest

from murho.model.training.candidates import LEAST, SearchBudget
from murho.model.training.options import make_options


def test_a_fit_gets_its_share_of_the_work_that_is_left_however_long_the_fits_took() -> None:
    budget = SearchBudget(make_options({}), 1_000, began=0.0)
    assert not budget.by_clock
    assert budget.of_fit(0.5, 2.0, began=0.0) == 12.0  # a quarter of 48
    budget.spend(12.0, 99.0, 5.0)
    assert budget.of_fit(1.0, 1.5, began=1e9) == 24.0
    assert budget.pace == 99.0 / 12.0
    assert not budget.late


def test_a_fit_beyond_the_plan_may_take_all_that_is_left() -> None:
    assert SearchBudget(make_options({}), 1_000, began=0.0).of_fit(1.0, 0.2, began=0.0) == 48.0


def test_a_budget_by_the_clock_counts_waiting_and_keeps_time_for_scoring() -> None:
    began = time.monotonic()
    budget = SearchBudget(make_options({"budget": 3600.0}), 1_000, began=began)
    assert budget.by_clock
    assert budget.of_fit(1.0, 1.0, began + 600.0) == pytest.approx(3000.0)
    budget.spend(10.0, 20.0, 8.0)
    assert budget.of_fit(1.0, 2.0, began + 600.0) == pytest.approx(1500.0 - 8.0)
    assert not budget.late
    late = SearchBudget(make_options({"budget": 10.0}), 1_000, began=began - 11.0)
    assert late.late
    assert late.of_fit(1.0, 1.0, began) == LEAST
