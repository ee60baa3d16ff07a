"""The budget of a search: the share of the next fit, in reference seconds or by the clock."""

from __future__ import annotations

import time

import pytest

from murho.model.training.candidates import FULL, LEAST, SETTLING, TRIAL, SearchPlan
from murho.model.training.options import make_options


def test_a_fit_gets_its_share_of_the_work_that_is_left_however_long_the_fits_took() -> None:
    plan = SearchPlan([TRIAL, TRIAL, FULL, SETTLING, SETTLING], make_options({}), 999, began=0.0)
    assert not plan.by_clock
    assert plan.begin(TRIAL, 1, "", began=0.0)[1] == 6.0  # an eighth of 48
    plan.spend(6.0, 99.0, 5.0)
    assert plan.begin(TRIAL, 2, "", began=1e9)[1] == pytest.approx(42.0 / 7.0)
    assert plan.pace == 99.0 / 6.0
    assert not plan.late


def test_a_fit_beyond_the_plan_may_take_all_that_is_left() -> None:
    plan = SearchPlan([TRIAL], make_options({}), 1_000, began=0.0)
    assert plan.begin(FULL, 1, "", began=0.0)[1] == 48.0


def test_a_budget_by_the_clock_counts_waiting_and_keeps_time_for_scoring() -> None:
    began = time.monotonic()
    plan = SearchPlan([FULL, FULL], make_options({"budget": 3600.0}), 1_000, began=began)
    assert plan.by_clock
    plan.spend(10.0, 20.0, 8.0)
    assert plan.begin(FULL, 1, "", began + 600.0)[1] == pytest.approx(1500.0 - 8.0)
    assert plan.begin(FULL, 2, "", began + 600.0)[1] == pytest.approx(3000.0 - 8.0)
    assert not plan.late
    late = SearchPlan([FULL], make_options({"budget": 10.0}), 1_000, began=began - 11.0)
    assert late.late
    assert late.begin(FULL, 1, "", began)[1] == LEAST
