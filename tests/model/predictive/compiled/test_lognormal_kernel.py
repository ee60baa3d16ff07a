"""Compiled moments of exponentials: those of `model.distributions.transforms`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from murho.model.distributions.transforms import NEAR_SEAM, Logarithm
from murho.model.predictive.compiled.lognormal import fill_moments, one_moment


@pytest.mark.parametrize("mean", [-3.0, -0.001, 0.5])
def test_of_a_narrow_one_the_moments_are_those_of_its_place(mean: float) -> None:
    value, deviation = one_moment(mean, 1e-6, 7.0)
    place, slope = (np.exp(mean), np.exp(mean)) if mean < 0.0 else (1.0 + mean, 1.0)
    assert value == pytest.approx(place, rel=1e-9)
    assert deviation == pytest.approx(1e-6 * slope, rel=1e-3)


def test_one_alone_is_as_among_others() -> None:
    generator = np.random.default_rng(0)
    means, noise = generator.normal(-4.0, 3.0, 300), np.exp(generator.normal(-1.0, 1.0, 300))
    values, deviations = np.empty(300), np.empty(300)
    fill_moments(means, noise, values, deviations, 7.0)
    alone = np.array([one_moment(mean, width, 7.0) for mean, width in zip(means, noise, strict=True)])
    np.testing.assert_allclose(np.stack((values, deviations), axis=1), alone, rtol=1e-13)


def test_moments_are_those_of_the_transform_on_either_side_of_the_seam() -> None:
    noise = np.repeat([1e-3, 0.03, 0.5, 3.0, 12.0, 25.0], 901)
    # From where nothing is beyond the seam to where nothing is below it.
    means = np.tile(np.linspace(-45.0, 45.0, 901), 6) * noise
    values, deviations = np.empty_like(means), np.empty_like(means)
    fill_moments(means, noise, values, deviations, NEAR_SEAM)
    expected = Logarithm(0.0, 0.0).moments(torch.from_numpy(means), torch.from_numpy(noise))
    np.testing.assert_allclose(values, expected[0], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(deviations, expected[1], rtol=1e-6, atol=1e-9)


def test_far_from_the_training_range_they_stay_finite() -> None:
    means, noise = np.array([-1e4, -50.0, 50.0, 1e4]), np.full(4, 3.0)
    values, deviations = np.empty(4), np.empty(4)
    fill_moments(means, noise, values, deviations, NEAR_SEAM)
    assert np.isfinite(values).all()
    assert (np.isfinite(deviations) & (deviations >= 0.0)).all()
    assert values[0] == pytest.approx(0.0, abs=1e-300)
