"""Transforms of the target: exact changes of variables; moments, clipped too, against quadrature."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from murho.model.distributions.target_transforms import Identity, Limits, Logarithm
from tests.model.conftest import present

LOGARITHM = Logarithm(0.5, math.log(100.5))


@given(target=st.floats(0.0, 1e6))
def test_the_inverse_undoes_the_logarithm_on_either_side_of_its_seam(target: float) -> None:
    value = torch.tensor(target, dtype=torch.float64)
    back = LOGARITHM.inverse(LOGARITHM.forward(value))
    assert float(back) == pytest.approx(target, rel=1e-9, abs=1e-9)


def test_below_the_largest_training_target_it_is_the_logarithm_and_straight_beyond() -> None:
    values = torch.tensor([0.0, 3.0, 100.0], dtype=torch.float64)
    torch.testing.assert_close(LOGARITHM.forward(values), torch.log(values + 0.5))
    beyond = LOGARITHM.forward(torch.tensor([100.0, 200.0, 300.0], dtype=torch.float64))
    torch.testing.assert_close(beyond.diff()[0], beyond.diff()[1])
    assert bool(torch.isfinite(LOGARITHM.inverse(torch.tensor([1e6, -1e6]))).all())


def test_moments_stay_finite_far_beyond_the_training_range() -> None:
    means = torch.tensor([-1e4, -50.0, 50.0, 1e4], dtype=torch.float64)
    value, deviation = LOGARITHM.moments(means, torch.tensor(3.0, dtype=torch.float64))
    assert bool(torch.isfinite(value).all())
    assert bool((torch.isfinite(deviation) & (deviation > 0.0)).all())
    assert float(value[0]) == pytest.approx(-0.5)


def test_it_serves_targets_that_are_never_negative() -> None:
    assert Logarithm.fit(torch.tensor([-1.0, 2.0])) is None
    assert Logarithm.fit(torch.tensor([0.0, 0.0])) is None
    positive = present(Logarithm.fit(torch.tensor([2.0, 8.0], dtype=torch.float64)))
    assert positive.shift == 0.0
    assert positive.top == pytest.approx(math.log(8.0))
    assert present(Logarithm.fit(torch.tensor([0.0, 4.0, 8.0], dtype=torch.float64))).shift == 2.0


MEANS, NOISES = (-6.0, -0.4, 0.0, 0.9, 1.3, 7.0), (0.05, 0.6, 2.0)


RANGES = [(-math.inf, math.inf), (-1.0, 2.0), (-math.inf, 2.0), (0.0, math.inf), (0.5, 6.0), (-3.0, 1.0)]


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
@pytest.mark.parametrize("limits", RANGES)
def test_they_are_those_of_quadrature(transform: Identity | Logarithm, limits: tuple[float, float]) -> None:
    for mean, noise in [(mean, noise) for mean in MEANS[::2] for noise in NOISES]:
        arguments = (torch.tensor([mean]).double(), torch.tensor([noise]).double())
        found = [float(part) for part in transform.moments(*arguments, Limits(*limits))]
        assert found == pytest.approx(_by_quadrature(transform, mean, noise, limits), rel=1e-6, abs=2e-7)


@pytest.mark.parametrize("transform", [Identity(), Logarithm(0.1, 1.1)])
def test_far_beyond_a_limit_everything_lies_on_it(transform: Identity | Logarithm) -> None:
    means = torch.tensor([-500.0, -40.0, 40.0, 900.0]).double()
    value, deviation = transform.moments(means, torch.tensor(0.5).double(), Limits(0.25, 2.0))
    np.testing.assert_allclose(value, [0.25, 0.25, 2.0, 2.0], rtol=1e-9)
    np.testing.assert_allclose(deviation, 0.0, atol=1e-7)


def test_moments_are_the_same_by_whichever_formula() -> None:
    noise = torch.tensor([1e-3, 0.03, 0.5, 3.0, 12.0, 25.0], dtype=torch.float64)
    # From where nothing is beyond the seam to where nothing is below it.
    seams = torch.linspace(45.0, -45.0, 901, dtype=torch.float64).unsqueeze(1)
    means = -seams * noise
    below = [
        torch.exp(power * means + 0.5 * (power * noise) ** 2 + torch.special.log_ndtr(seams - power * noise))
        for power in (1, 2)
    ]
    above = 0.5 * torch.erfc(seams * 0.5**0.5)
    density = torch.exp(-0.5 * seams.square()) / math.sqrt(2.0 * math.pi)
    first = below[0] + (1.0 + means) * above + noise * density
    second = below[1] + ((1.0 + means).square() + noise.square()) * above
    second += noise * (2.0 * (1.0 + means) + noise * seams) * density
    value, deviation = LOGARITHM.moments(LOGARITHM.top + means, noise)
    torch.testing.assert_close(value, 100.5 * first - 0.5, rtol=1e-10, atol=1e-10)
    expected = 100.5 * (second - first.square()).clamp_min(1e-24).sqrt()
    torch.testing.assert_close(deviation, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("transform", [Identity(), LOGARITHM])
def test_the_slope_is_the_derivative(transform: Identity | Logarithm) -> None:
    values = torch.tensor([0.01, 7.0, 99.0, 101.0, 500.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(transform.forward(values).sum(), values)
    torch.testing.assert_close(transform.log_slope(values).detach(), slope.log())
