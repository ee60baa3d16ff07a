"""The compiled SiLU against double precision."""

from __future__ import annotations

import numpy as np
import pytest

from murho.model.predictive.compiled.network import silu


@pytest.mark.parametrize("count", [1, 7, 64, 20_001])
def test_it_is_the_silu_to_a_few_units_in_the_last_place(count: int) -> None:
    values = np.linspace(-80.0, 80.0, count, dtype=np.float32)
    exact = values.astype(np.float64) / (1.0 + np.exp(-values.astype(np.float64)))
    silu(values)
    assert (np.abs(values - exact) <= 6e-7 * np.abs(exact) + 2e-9).all()


def test_extremes_and_numbers_that_are_none_stay_what_they_are() -> None:
    values = np.array([0.0, -200.0, 200.0, -3e38, 3e38, np.inf, np.nan], dtype=np.float32)
    silu(values)
    assert values[0] == 0.0
    assert values[1] == pytest.approx(0.0, abs=1e-30)
    assert values[2] == 200.0
    assert abs(values[3]) <= 4.0
    assert values[4] == np.float32(3e38)
    assert values[5] == np.inf
    assert np.isnan(values[6])
