"""Mixtures of Gaussians: quantiles against bisection, closed forms against brute force, steps, the wide component."""

import pytest
import torch
from torch import Tensor

from murho.model.distributions import mixtures
from murho.model.distributions.mixtures import Mixture, WideRule
from tests.model.mixture_references import HARD, SCORES, SMOOTH, assert_exact, make


def _mixture(
    seed: int, samples: int = 40, rows: int = 7, spread: float = 1.0, noise: float = 1.0
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(samples, rows, generator=generator, dtype=torch.float64) * spread
    sigma = noise * torch.exp(torch.randn(samples, rows, generator=generator, dtype=torch.float64))
    return means, sigma


def test_normal_score_of_a_gaussian_is_the_standardised_value_in_both_tails() -> None:
    means, noise = torch.zeros(3, 5).double(), torch.full((3, 5), 2.0).double()
    values = torch.tensor([[-50.0, -2.0, 0.0, 2.0, 50.0]], dtype=torch.float64)
    torch.testing.assert_close(Mixture(means, noise).normal_score(values), values / 2.0)


@pytest.mark.parametrize("samples", [1, 2, 5, 6])
def test_crps_equals_its_integral(samples: int) -> None:
    means, noise = _mixture(6, samples=samples, rows=1)
    value = torch.tensor([0.7], dtype=torch.float64)
    grid = torch.linspace(-80.0, 80.0, 400_001, dtype=torch.float64)
    cdf = torch.distributions.Normal(means, noise).cdf(grid).mean(dim=0)
    integral = torch.trapezoid((cdf - (grid >= value).double()).square(), grid)
    assert float(Mixture(means, noise).crps(value)[0]) == pytest.approx(float(integral), abs=1e-3)


DENSE = torch.special.ndtri(torch.arange(1, 100, dtype=torch.float64) / 100.0)


FURTHER = torch.tensor([-35.0, -25.0, -7.5, -6.9, 6.9, 7.5, 25.0, 35.0], dtype=torch.float64)
CLOSE = torch.linspace(-1e-6, 1e-6, 21, dtype=torch.float64)


@pytest.mark.parametrize("kind", SMOOTH | HARD)
def test_quantiles_are_what_bisection_finds_also_far_out_and_rise_with_the_level(kind: str) -> None:
    for seed, scores, tolerance in ((0, SCORES, 2e-6), (3, DENSE, 2e-6), (4, FURTHER, 1e-5), (5, CLOSE, 2e-6)):
        mixture = make(kind, seed)
        values = mixture.quantiles(scores)
        assert_exact(mixture, scores, values, tolerance)
        assert (values.diff(dim=1) >= 0.0).all()
        turned = (mixture.quantiles(scores.flip(0)).flip(1) - values).abs() / mixture.moments()[1].unsqueeze(-1)
        assert float(turned.max()) <= tolerance
    furthest = torch.tensor([-37.0, 37.0], dtype=torch.float64)
    tolerance = 1e-3 if "wide" in kind else 1e-4  # there they lie in the wide component
    assert_exact(mixture, furthest, mixture.quantiles(furthest), tolerance)


def test_its_weight_is_the_rule_of_succession_and_it_adds_a_twentieth_of_the_noise_variance() -> None:
    for rows in (20, 700, 50_000):
        rule = WideRule.after(rows)
        assert rule.weight == pytest.approx(1.0 / (rows + 1))
        assert rule.weight * rule.widening**2 == pytest.approx(0.05)


def test_it_has_the_spread_of_its_mixture_and_a_wider_noise_up_to_that_of_the_targets() -> None:
    spreads, noise = torch.tensor([5.0, 5.0, 5.0]).double(), torch.tensor([0.5, 3.0, 0.0]).double()
    wide = WideRule(0.01, 8.0).noise(spreads, noise, most=12.0)
    assert wide.tolist() == pytest.approx([(25.0 + 16.0) ** 0.5, 13.0, 5.0])


@pytest.mark.parametrize("kind", ["weighted", "an outlier", "a staircase, and wide", "a mean of ten million"])
def test_a_row_alone_has_those_it_has_among_others_whatever_the_tiles(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixture = make(kind, 6)
    large = mixture.of_rows(torch.arange(6).repeat(100))
    spread = mixture.moments()[1].unsqueeze(-1)
    for scores in (SCORES, DENSE):
        whole = large.quantiles(scores)
        with monkeypatch.context() as patch:
            patch.setattr(mixtures, "TILE_VALUES", 64)
            assert float(((mixture.quantiles(scores) - whole[:6]).abs() / spread).max()) <= 2e-6
        for row in range(6):
            alone = mixture.of_rows(slice(row, row + 1)).quantiles(scores)
            for start in (0, 594):
                assert float(((alone - whole[start + row]).abs() / spread[row]).max()) <= 1e-5
