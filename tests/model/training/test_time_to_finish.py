"""What is kept back for the end of a training follows the machine's pace, within limits."""

from __future__ import annotations

import pytest

from murho.model.training.candidates import TimeToFinish

ROWS = 2_400
SIXTY = TimeToFinish(60.0, ROWS)


@pytest.mark.parametrize(("pace", "seconds"), [(0.1, 12.0), (2.0, 14.6), (9.0, 30.0)])
def test_a_slower_machine_keeps_back_more_up_to_half(pace: float, seconds: float) -> None:
    assert SIXTY.kept_back(pace) == pytest.approx(seconds)


def test_a_search_that_ends_in_time_leaves_time_for_all_rows() -> None:
    for pace in (0.5, 1.0, 2.0):
        assert SIXTY.rows_in_time(60.0 - SIXTY.kept_back(pace), pace, fewest=500) == ROWS


def test_fewer_rows_calibrate_where_it_is_late_but_never_too_few() -> None:
    assert SIXTY.rows_in_time(56.0, 2.0, fewest=500) == pytest.approx(1_250, abs=1)
    assert SIXTY.rows_in_time(90.0, 2.0, fewest=500) == 500
