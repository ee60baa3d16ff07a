"""Transforms of the target: exact changes of variables."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.distributions.transforms import TRANSFORMS, Identity, Logarithm, Standardisation
from murho.model.errors import CheckpointError

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


@pytest.mark.parametrize("transform", [Identity(), LOGARITHM])
def test_the_slope_is_the_derivative(transform: Identity | Logarithm) -> None:
    values = torch.tensor([0.01, 7.0, 99.0, 101.0, 500.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(transform.forward(values).sum(), values)
    torch.testing.assert_close(transform.log_slope(values).detach(), slope.log())


@settings(deadline=None, max_examples=40)
@given(mean=st.floats(-3.0, 9.0), noise=st.floats(0.01, 2.0))
def test_moments_equal_their_integrals(mean: float, noise: float) -> None:
    z = torch.linspace(mean - 12.0 * noise, mean + 12.0 * noise, 200_001, dtype=torch.float64)
    density = torch.exp(torch.distributions.Normal(mean, noise).log_prob(z))
    y = LOGARITHM.inverse(z)
    first = float(torch.trapezoid(density * y, z))
    second = float(torch.trapezoid(density * (y - first).square(), z))
    value, deviation = LOGARITHM.moments(
        torch.tensor(mean, dtype=torch.float64), torch.tensor(noise, dtype=torch.float64)
    )
    assert float(value) == pytest.approx(first, rel=1e-6, abs=1e-6)
    assert float(deviation) == pytest.approx(math.sqrt(second), rel=1e-5)


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


def test_moments_do_not_depend_on_how_numbers_lie_in_memory() -> None:
    generator = torch.Generator().manual_seed(0)
    means = LOGARITHM.top + torch.randn((4, 3, 5), generator=generator, dtype=torch.float64)
    noise = 0.1 + torch.rand((4, 3, 5), generator=generator, dtype=torch.float64)
    expected = LOGARITHM.moments(means, noise)
    found = LOGARITHM.moments(means.transpose(0, 2).contiguous().transpose(0, 2), noise)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0)


def test_moments_stay_finite_far_beyond_the_training_range() -> None:
    means = torch.tensor([-1e4, -50.0, 50.0, 1e4], dtype=torch.float64)
    value, deviation = LOGARITHM.moments(means, torch.tensor(3.0, dtype=torch.float64))
    assert bool(torch.isfinite(value).all())
    assert bool((torch.isfinite(deviation) & (deviation > 0.0)).all())
    assert float(value[0]) == pytest.approx(-0.5)


def test_it_serves_targets_that_are_never_negative() -> None:
    assert Logarithm.fit(torch.tensor([-1.0, 2.0])) is None
    assert Logarithm.fit(torch.tensor([0.0, 0.0])) is None
    positive = Logarithm.fit(torch.tensor([2.0, 8.0], dtype=torch.float64))
    assert positive is not None
    assert positive.shift == 0.0
    assert positive.top == pytest.approx(math.log(8.0))
    counts = Logarithm.fit(torch.tensor([0.0, 4.0, 8.0], dtype=torch.float64))
    assert counts is not None
    assert counts.shift == 2.0


@pytest.mark.parametrize("transform", [Identity(), LOGARITHM])
def test_a_transform_survives_its_json(transform: Identity | Logarithm) -> None:
    standardisation = Standardisation(transform, 1.0, 2.0)
    assert Standardisation.from_json(standardisation.to_json()) == standardisation
    assert TRANSFORMS[transform.kind] is type(transform)


def test_a_damaged_transform_is_named() -> None:
    plain = Standardisation(Identity(), 0.0, 1.0).to_json()
    with pytest.raises(CheckpointError, match=r"target\.transform: .*cube"):
        Standardisation.from_json(plain | {"transform": {"kind": "cube"}}, "target")
    with pytest.raises(CheckpointError, match=r"target\.transform\.top"):
        Standardisation.from_json(plain | {"transform": {"kind": "log", "shift": 0.0, "top": math.inf}}, "target")
