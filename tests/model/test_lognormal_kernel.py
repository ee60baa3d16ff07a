"""Compiled moments of single exponentials; those of many are tested with `model.transforms`."""

from __future__ import annotations

import numpy as np
import pytest

from model.lognormal_kernel import fill_moments, one_moment


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
