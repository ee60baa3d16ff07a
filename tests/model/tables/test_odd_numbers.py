"""Numbers that stand for a missing value, and slips: what is suspected, and what is not."""

from __future__ import annotations

import numpy as np
import pytest

from murho.model.tables.inference import far_numbers, suspected_code

SENSOR = np.random.default_rng(0).gamma(4.0, 0.5, 300).round(1)


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        (np.append(SENSOR, [-200.0] * 30), -200.0),
        (np.append(np.arange(300) % 30, [-1.0] * 200), -1.0),  # days since the last call, and none
        (np.append(np.arange(300) % 40, [999.0] * 5), 999.0),
        (np.append(SENSOR, [-200.0]), None),  # once is a slip
        (np.append(SENSOR, [-7.0] * 30), None),
        (np.clip(np.random.default_rng(0).normal(0.0, 0.5, 300), -1.0, 1.0), None),
        (np.append(np.arange(300) % 98, [99.0] * 5), None),
    ],
)
def test_a_code_is_frequent_and_far_outside(numbers: np.ndarray, code: float | None) -> None:
    assert suspected_code(numbers) == code


def test_far_numbers_are_few_and_a_hundred_times_as_far_out() -> None:
    assert far_numbers(np.append(SENSOR, [1e9, np.nan, -1e300])).tolist() == [300, 302]
    assert far_numbers(np.append(SENSOR, [1e9] * 4)).tolist() == []
    assert far_numbers(np.random.default_rng(0).pareto(1.5, 1000)).tolist() == []
