"""Mixtures of Gaussians: closed forms against brute force."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.distributions.mixtures import Mixture

if TYPE_CHECKING:
    from torch import Tensor


def _mixture(
    seed: int, samples: int = 40, rows: int = 7, spread: float = 1.0, noise: float = 1.0
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(samples, rows, generator=generator, dtype=torch.float64) * spread
    sigma = noise * torch.exp(torch.randn(samples, rows, generator=generator, dtype=torch.float64))
    return means, sigma


def _bisect(means: Tensor, noise: Tensor, level: float) -> Tensor:
    """The reference: two hundred halvings of the distribution function itself."""
    lower, upper = (means - 60.0 * noise).amin(dim=0), (means + 60.0 * noise).amax(dim=0)
    for _ in range(200):
        middle = 0.5 * (lower + upper)
        cdf = torch.distributions.Normal(means, noise).cdf(middle).mean(dim=0)
        lower, upper = torch.where(cdf < level, middle, lower), torch.where(cdf < level, upper, middle)
    return 0.5 * (lower + upper)


def _std(means: Tensor, noise: Tensor) -> Tensor:
    return Mixture(means, noise).moments()[1]


@pytest.mark.parametrize("spread", [1e-6, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("level", [0.001, 0.05, 0.5, 0.77, 0.95, 0.999])
def test_percentiles_equal_brute_force_to_a_ten_thousandth_of_std(spread: float, level: float) -> None:
    means, noise = _mixture(1, spread=spread)
    scores = torch.special.ndtri(torch.tensor([level], dtype=torch.float64))
    error = (Mixture(means, noise).quantiles(scores)[:, 0] - _bisect(means, noise, level)).abs()
    assert float((error / _std(means, noise)).max()) < 1e-5


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    spread=st.floats(1e-3, 1e3),
    noise=st.floats(1e-3, 1e3),
    shift=st.floats(-1e6, 1e6),
)
def test_percentiles_rise_with_the_level_and_undo_the_score(
    seed: int, spread: float, noise: float, shift: float
) -> None:
    means, sigma = _mixture(seed, samples=16, rows=3, spread=spread, noise=noise)
    means = means + shift
    scores = torch.tensor([-6.0, -2.0, -1.9999, 0.0, 0.3, 3.0], dtype=torch.float64)
    values = Mixture(means, sigma).quantiles(scores)
    assert bool((values.diff(dim=1) >= 0.0).all())
    below = Mixture(means, sigma).normal_score((values - 1e-5 * _std(means, sigma)[:, None]).T).T
    above = Mixture(means, sigma).normal_score((values + 1e-5 * _std(means, sigma)[:, None]).T).T
    # Between components far apart F is flat but for rounding.
    assert bool(((below <= scores + 1e-9) & (scores <= above + 1e-9)).all())


def test_percentiles_of_one_gaussian_are_exact_far_into_the_tails() -> None:
    scores = torch.tensor([-30.0, -8.0, 0.0, 5.0, 20.0], dtype=torch.float64)
    means, noise = torch.full((4, 1), 3.0).double(), torch.full((4, 1), 2.0).double()
    torch.testing.assert_close(Mixture(means, noise).quantiles(scores), (3.0 + 2.0 * scores)[None])


def test_order_in_which_levels_are_asked_does_not_matter() -> None:
    means, noise = _mixture(4)
    scores = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(
        Mixture(means, noise).quantiles(scores)[:, [1, 2, 0]],
        Mixture(means, noise).quantiles(scores[[1, 2, 0]]),
    )


def test_normal_score_of_a_gaussian_is_the_standardised_value_in_both_tails() -> None:
    means, noise = torch.zeros(3, 5).double(), torch.full((3, 5), 2.0).double()
    values = torch.tensor([[-50.0, -2.0, 0.0, 2.0, 50.0]], dtype=torch.float64)
    torch.testing.assert_close(Mixture(means, noise).normal_score(values), values / 2.0)


def test_log_density_integrates_to_one() -> None:
    means, noise = _mixture(5, samples=6, rows=1)
    grid = torch.linspace(-120.0, 120.0, 200_001, dtype=torch.float64)
    density = Mixture(means.expand(-1, len(grid)), noise.expand(-1, len(grid))).log_density(grid).exp()
    assert float(torch.trapezoid(density, grid)) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("samples", [1, 2, 5, 6])
def test_crps_equals_its_integral(samples: int) -> None:
    means, noise = _mixture(6, samples=samples, rows=1)
    value = torch.tensor([0.7], dtype=torch.float64)
    grid = torch.linspace(-80.0, 80.0, 400_001, dtype=torch.float64)
    cdf = torch.distributions.Normal(means, noise).cdf(grid).mean(dim=0)
    integral = torch.trapezoid((cdf - (grid >= value).double()).square(), grid)
    assert float(Mixture(means, noise).crps(value)[0]) == pytest.approx(float(integral), abs=1e-3)


def test_crps_of_one_gaussian_is_the_closed_form() -> None:
    z = 1.3
    density, cdf = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi), 0.5 * (1 + math.erf(z / math.sqrt(2)))
    expected = 2.0 * (z * (2 * cdf - 1) + 2 * density - 1 / math.sqrt(math.pi))
    means, noise = torch.full((7, 1), 1.0).double(), torch.full((7, 1), 2.0).double()
    assert float(Mixture(means, noise).crps(torch.tensor([1.0 + 2.0 * z]).double())[0]) == pytest.approx(expected)


def test_a_weight_counts_as_so_many_equal_components() -> None:
    means, noise = _mixture(9, samples=3, rows=4)
    repeats = torch.tensor([1, 2, 5])
    weighted = Mixture(means, noise, (repeats / 8.0).double().unsqueeze(1).expand(-1, 4))
    repeated = Mixture(means.repeat_interleave(repeats, dim=0), noise.repeat_interleave(repeats, dim=0))
    values = torch.tensor([-3.0, 0.1, 1.0, 8.0], dtype=torch.float64)
    scores = torch.tensor([-2.0, 0.0, 1.5], dtype=torch.float64)
    torch.testing.assert_close(weighted.moments(), repeated.moments())
    torch.testing.assert_close(weighted.quantiles(scores), repeated.quantiles(scores), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(weighted.normal_score(values), repeated.normal_score(values))
    torch.testing.assert_close(weighted.log_density(values), repeated.log_density(values))
    torch.testing.assert_close(weighted.crps(values), repeated.crps(values), rtol=1e-5, atol=1e-6)


def test_hard_rows_are_exact_among_many_easy_ones() -> None:
    means, noise = _mixture(3, rows=30, noise=0.5)
    hard = torch.arange(30) % 7 == 0
    means[:, hard] = torch.sign(means[:, hard]) * 1e3 + torch.arange(int(hard.sum()))
    noise[:, hard] = 1e-4
    scores = torch.special.ndtri(torch.tensor([0.05, 0.31, 0.95], dtype=torch.float64))
    mixture = Mixture(means, noise)
    values = mixture.quantiles(scores)
    for index, level in enumerate((0.05, 0.31, 0.95)):
        error = (values[:, index] - _bisect(means, noise, level)).abs() / mixture.moments()[1]
        assert float(error.max()) < 1e-6
    for row in range(30):
        alone = mixture.of_rows(slice(row, row + 1))
        difference = (alone.quantiles(scores)[0] - values[row]).abs() / alone.moments()[1]
        assert float(difference.max()) < 2e-6


@pytest.mark.parametrize("shared", [False, True])
def test_a_row_alone_has_the_percentiles_it_has_among_others(shared: bool) -> None:
    means, noise = _mixture(5, samples=300, rows=700)
    noise = noise[:, :1] if shared else noise
    scores = torch.tensor([-1.6, 0.0, 1.6], dtype=torch.float64)
    whole = Mixture(means, noise).quantiles(scores)
    for row in (0, 350, 699):
        rows = slice(row, row + 1)
        alone = Mixture(means[:, rows], noise if shared else noise[:, rows]).quantiles(scores)
        torch.testing.assert_close(alone, whole[rows], rtol=1e-6, atol=1e-6)


def test_no_rows_have_no_percentiles() -> None:
    means, noise = _mixture(5, rows=0)
    assert Mixture(means, noise).quantiles(torch.zeros(3).double()).shape == (0, 3)
