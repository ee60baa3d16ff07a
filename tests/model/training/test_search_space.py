"""The temperature of the settling fit of a small table."""

from __future__ import annotations

import pytest

from murho.model.training.tasks import next_temperature


@pytest.mark.parametrize(
    ("temperature", "full", "expected"),
    [
        (0.1, 1.0, 0.3),  # no better than the trial: by heart
        (0.1, 1.2, 0.3),
        (0.1, 0.95, 0.1),
        (0.1, 0.8, 0.03),  # much better: trials had only begun
        (1.0, 1.2, 1.0),
        (0.03, 0.5, 0.03),
    ],
)
def test_it_rises_where_a_full_fit_gains_nothing_and_falls_where_it_gains_much(
    temperature: float, full: float, expected: float
) -> None:
    assert next_temperature(temperature, 1.0, full) == expected
