"""Calibration errors, and the histogram of the probability integral transform (PIT)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from murho.model.evaluation.numbers import reliability
from murho.model.evaluation.rows import RowWeights

if TYPE_CHECKING:
    from numpy.typing import NDArray

shares = arrays(float, st.integers(1, 60), elements=st.floats(0.0, 1.0))
EVEN: NDArray[np.float64] = np.arange(0.0005, 1.0, 0.001)


def test_even_transforms_are_without_error() -> None:
    report = reliability(EVEN)
    for errors in report["calibration_error"].values():
        assert errors == pytest.approx({"mean_absolute": 0.0, "rms": 0.0, "max": 0.0}, abs=1e-3)
    assert report["pit"]["histogram"] == pytest.approx([0.1] * 10)


def test_a_median_that_is_always_right_has_known_errors() -> None:
    """Observed shares are 0 below and 1 from 50 % on: errors of 1 to 49 %, then of 50 down to 1 %."""
    errors = reliability(np.full(7, 0.5))["calibration_error"]["quantiles"]
    gaps = np.concatenate([np.arange(1, 50), np.arange(50, 0, -1)]) / 100.0
    assert errors["mean_absolute"] == pytest.approx(gaps.mean())
    assert errors["rms"] == pytest.approx(np.sqrt(np.mean(gaps**2)))
    assert errors["max"] == pytest.approx(0.5)


def test_bands_are_blind_to_a_shift_and_quantiles_are_not() -> None:
    """All targets lie in the upper half, at the right depth in the bands."""
    report = reliability(0.5 + 0.5 * EVEN)["calibration_error"]
    assert report["bands"]["max"] < 0.01
    assert report["quantiles"]["max"] == pytest.approx(0.5, abs=0.01)


@given(shares)
def test_observed_shares_are_those_up_to_the_level(uniform: np.ndarray) -> None:
    report = reliability(uniform)
    levels = np.arange(1, 100) / 100.0
    observed = np.array([(uniform <= level).mean() for level in levels])
    np.testing.assert_allclose(report["reliability"]["quantiles"], observed[4::5], atol=1e-12)
    errors = report["calibration_error"]["quantiles"]
    assert errors["max"] == pytest.approx(np.abs(observed - levels).max())
    assert errors["mean_absolute"] <= errors["rms"] + 1e-12 <= errors["max"] + 2e-12


def test_weights_count_in_shares() -> None:
    heavy = RowWeights.of(1_000, np.where(EVEN < 0.5, 3.0, 1.0))
    assert reliability(EVEN, heavy)["reliability"]["quantiles"][9] == pytest.approx(0.75, abs=2e-3)


@given(shares)
def test_histograms_count_every_row_once(uniform: np.ndarray) -> None:
    assert sum(reliability(uniform)["pit"]["histogram"]) == pytest.approx(1.0)
