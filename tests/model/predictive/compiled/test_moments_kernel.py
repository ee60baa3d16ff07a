"""One row's components, compiled: against PyTorch in double precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from murho.model.distributions.steps import SQRT_HALF
from murho.model.predictive.compiled.moments import (
    Scale,
    draw_moments,
    is_finite,
    row_moments,
    softmax,
    softplus,
    standardise,
    widths,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

COUNT, SAMPLES = 3, 45


@pytest.fixture
def numbers() -> NDArray[np.float32]:
    """``[3, K, S]``."""
    return np.random.default_rng(0).normal(0.0, 3.0, (3, COUNT, SAMPLES)).astype(np.float32)


def test_softplus_is_right_to_3e_7() -> None:
    values = np.linspace(-86.0, 90.0, 1761, dtype=np.float32)
    found = np.array([softplus(value) for value in values], dtype=np.float64)
    exact = np.logaddexp(0.0, values.astype(np.float64))
    assert np.abs(found / exact - 1.0).max() < 3e-7


def test_widths_are_a_floor_and_softplus(numbers: NDArray[np.float32]) -> None:
    raw = numbers[0].reshape(-1).copy()
    expected = 0.25 + np.logaddexp(0.0, raw.astype(np.float64))
    widths(raw, np.float32(0.25))
    np.testing.assert_allclose(raw, expected, rtol=4e-7)


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_softmax_goes_over_the_components_of_each_draw(numbers: NDArray[np.float32], scale: float) -> None:
    logits = np.float32(scale) * numbers[0]
    expected = torch.softmax(torch.from_numpy(logits).double(), dim=0).numpy()
    found = logits.copy()
    softmax(found, np.empty(SAMPLES, dtype=np.float32), np.empty(SAMPLES, dtype=np.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_moments_of_draws_and_of_the_row_are_those_of_their_formulas(numbers: NDArray[np.float32]) -> None:
    means, noise = numbers[0], np.abs(numbers[1])
    weights = np.exp(numbers[2])
    weights = (weights / weights.sum(axis=0)).astype(np.float32)
    mean, variance = np.empty(SAMPLES), np.empty(SAMPLES)
    draw_moments(means.astype(np.float64), noise.astype(np.float64), weights, mean, variance)
    of_draws = (weights.astype(np.float64) * means).sum(axis=0)
    np.testing.assert_allclose(mean, of_draws, rtol=1e-12, atol=1e-12)
    spread = np.square(means - of_draws) + np.square(noise.astype(np.float64))
    np.testing.assert_allclose(variance, (weights.astype(np.float64) * spread).sum(axis=0), rtol=1e-12)
    assert row_moments(mean, variance) == pytest.approx((mean.mean(), mean.var(), variance.mean()), rel=1e-12)


def test_a_spread_that_is_small_beside_the_mean_is_not_lost() -> None:
    mean = np.float32(1000.0) + np.linspace(-1.0, 1.0, 257, dtype=np.float32) / np.float32(128.0)
    found = row_moments(mean, np.zeros_like(mean))
    assert found == pytest.approx((mean.astype(np.float64).mean(), mean.astype(np.float64).var(), 0.0), rel=1e-12)


def test_standardised_components_are_in_units_of_the_row(numbers: NDArray[np.float32]) -> None:
    means, noise, weights = (part.reshape(-1).copy() for part in (numbers[0], np.abs(numbers[1]), np.abs(numbers[2])))
    own, precisions, shares = np.empty((3, means.size), dtype=np.float32)
    standardise(means, noise, weights, Scale(0.125, 0.7, 2.5, 0.0, 0.0), own, precisions, shares)
    np.testing.assert_allclose(own, (means.astype(np.float64) - 0.7) / 2.5, rtol=1e-6)
    np.testing.assert_allclose(precisions, 2.5 * SQRT_HALF / noise.astype(np.float64), rtol=1e-6)
    np.testing.assert_allclose(shares, 0.125 * weights, rtol=1e-6)


@pytest.mark.parametrize(
    ("centre", "unit", "expected"),
    [(0.0, 1.0, True), (np.nan, 1.0, False), (0.0, np.inf, False), (0.0, 0.0, False), (0.0, np.nan, False)],
)
def test_a_row_without_a_finite_mean_and_spread_is_told(centre: float, unit: float, expected: bool) -> None:
    assert is_finite(Scale(1.0, centre, unit, 0.0, 0.0)) is expected
