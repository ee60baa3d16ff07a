"""The probability integral transform (PIT) and calibration errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from murho.model.calibration.conformal import fit_conformal_map
from murho.model.evaluation.metrics import calibration_error, kolmogorov_smirnov, pit_of, reliability

if TYPE_CHECKING:
    from numpy.typing import NDArray

shares = arrays(float, st.integers(1, 60), elements=st.floats(0.0, 1.0))
EVEN: NDArray[np.float64] = np.arange(0.0005, 1.0, 0.001)


def test_the_transform_is_the_share_below() -> None:
    np.testing.assert_allclose(pit_of(stats.norm.ppf(EVEN)), EVEN, rtol=1e-12)
    np.testing.assert_allclose(pit_of(np.array([-37.0, 37.0])), [0.0, 1.0], atol=1e-200)


def test_calibration_makes_the_transform_of_its_own_rows_even() -> None:
    scores = 3.0 * stats.norm.ppf(EVEN)  # bands a third as wide as they should be
    calibration = fit_conformal_map(scores)
    raw, calibrated = reliability(pit_of(scores)), reliability(pit_of(scores, calibration))
    assert raw["pit"]["histogram"][0] == raw["pit"]["histogram"][-1] > 0.3
    assert calibrated["pit"]["histogram"] == pytest.approx([0.1] * 10, abs=0.005)
    assert calibrated["pit"]["ks"] < 0.005 < 0.2 < raw["pit"]["ks"]
    assert calibrated["calibration_error"]["bands"]["max"] < 0.005


def test_even_transforms_are_without_error() -> None:
    report = reliability(EVEN)
    for errors in report["calibration_error"].values():
        assert errors == pytest.approx({"mean_absolute": 0.0, "rms": 0.0, "max": 0.0, "area": 0.0}, abs=1e-3)
    assert report["pit"]["histogram"] == pytest.approx([0.1] * 10)
    assert report["pit"]["ks"] == pytest.approx(0.0005)


def test_a_median_that_is_always_right_has_known_errors() -> None:
    """Observed shares are 0 below and 1 from 50 % on: errors of 1 to 49 %, then of 50 down to 1 %."""
    errors = calibration_error(np.full(7, 0.5))
    gaps = np.concatenate([np.arange(1, 50), np.arange(50, 0, -1)]) / 100.0
    assert errors["mean_absolute"] == pytest.approx(gaps.mean())
    assert errors["rms"] == pytest.approx(np.sqrt(np.mean(gaps**2)))
    assert errors["max"] == pytest.approx(0.5)
    assert errors["area"] == pytest.approx(0.25, abs=0.005)


def test_bands_are_blind_to_a_shift_and_quantiles_are_not() -> None:
    """All targets lie in the upper half, at the right depth in the bands."""
    report = reliability(0.5 + 0.5 * EVEN)["calibration_error"]
    assert report["bands"]["max"] < 0.01
    assert report["quantiles"]["max"] == pytest.approx(0.5, abs=0.01)
    assert report["quantiles"]["area"] == pytest.approx(0.25, abs=0.01)


@given(shares)
def test_the_area_is_that_between_polygon_and_diagonal(uniform: np.ndarray) -> None:
    levels = np.arange(101) / 100.0
    observed = np.array([0.0, *((uniform <= level).mean() for level in levels[1:-1]), 1.0])
    fine = np.linspace(0.0, 1.0, 100_001)
    area = np.trapezoid(np.abs(np.interp(fine, levels, observed) - fine), fine)
    errors = calibration_error(uniform)
    assert errors["area"] == pytest.approx(area, abs=1e-6)
    assert errors["mean_absolute"] <= errors["rms"] + 1e-12 <= errors["max"] + 2e-12


@given(shares)
def test_the_distance_is_scipys(uniform: np.ndarray) -> None:
    assert kolmogorov_smirnov(uniform) == pytest.approx(stats.kstest(uniform, "uniform").statistic, abs=1e-12)


@given(shares)
def test_histograms_count_every_row_once(uniform: np.ndarray) -> None:
    assert sum(reliability(uniform)["pit"]["histogram"]) == pytest.approx(1.0)
