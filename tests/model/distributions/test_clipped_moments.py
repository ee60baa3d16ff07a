"""Moments of clipped Gaussians and lognormals, against quadrature."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from murho.model.distributions.transforms import Identity, Limits, Logarithm

MEANS, NOISES = (-6.0, -0.4, 0.0, 0.9, 1.3, 7.0), (0.05, 0.6, 2.0)
LIMITS = [(-1.0, 2.0), (-math.inf, 2.0), (0.0, math.inf), (0.5, 6.0), (-3.0, 1.0)]


def _by_quadrature(
    transform: Identity | Logarithm, mean: float, noise: float, limits: tuple[float, float]
) -> list[float]:
    def clipped(z: float) -> float:
        return float(transform.inverse(torch.tensor(z, dtype=torch.float64)).clamp(*limits))

    ends = [float(transform.forward(torch.tensor(limit).double())) for limit in limits if math.isfinite(limit)]
    top = [transform.top] if isinstance(transform, Logarithm) else []
    kinks = sorted({mean, *(z for z in (*ends, *top) if abs(z - mean) < 12.0 * noise)})
    knots = [mean - 12.0 * noise, *kinks, mean + 12.0 * noise]

    def expect(power: int, centre: float) -> float:
        parts = (
            integrate.quad(
                lambda z: (clipped(z) - centre) ** power * stats.norm.pdf(z, mean, noise), *ends, epsabs=1e-12
            )[0]
            for ends in itertools.pairwise(knots)
        )
        return float(sum(parts))

    first = expect(1, 0.0)
    return [first, max(expect(2, first), 0.0) ** 0.5]


@pytest.mark.parametrize("transform", [Identity(), Logarithm(0.1, 1.1), Logarithm(0.0, 1.1)])
@pytest.mark.parametrize("limits", LIMITS)
def test_they_are_those_of_quadrature(transform: Identity | Logarithm, limits: tuple[float, float]) -> None:
    for mean, noise in [(mean, noise) for mean in MEANS[::2] for noise in NOISES]:
        arguments = (torch.tensor([mean]).double(), torch.tensor([noise]).double())
        found = [float(part) for part in transform.moments(*arguments, Limits(*limits))]
        assert found == pytest.approx(_by_quadrature(transform, mean, noise, limits), rel=1e-6, abs=2e-7)


@pytest.mark.parametrize("transform", [Identity(), Logarithm(0.1, 1.1)])
def test_limits_far_away_change_nothing(transform: Identity | Logarithm) -> None:
    means, noise = torch.tensor(MEANS).double(), torch.tensor(0.6).double()
    for found, expected in zip(
        transform.moments(means, noise, Limits(-1e9, 1e9)), transform.moments(means, noise), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("transform", [Identity(), Logarithm(0.1, 1.1)])
def test_far_beyond_a_limit_everything_lies_on_it(transform: Identity | Logarithm) -> None:
    means = torch.tensor([-500.0, -40.0, 40.0, 900.0]).double()
    value, deviation = transform.moments(means, torch.tensor(0.5).double(), Limits(0.25, 2.0))
    np.testing.assert_allclose(value, [0.25, 0.25, 2.0, 2.0], rtol=1e-9)
    np.testing.assert_allclose(deviation, 0.0, atol=1e-7)
