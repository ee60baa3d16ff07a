"""Many percentiles at once are those that are found one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model import mixture_quantiles as callers
from model import standard_mixtures
from model.dense_quantiles import dense_quantiles as standard_quantiles
from model.mixtures import Mixture
from model.quantile_goals import Goals
from model.standard_mixtures import StandardMixture
from tests.model.mixture_references import assert_exact

if TYPE_CHECKING:
    import pytest

LEVELS = torch.special.ndtri(torch.arange(1, 100, dtype=torch.float64) / 100.0)


def mixture(
    *, components: int = 24, rows: int = 6, noise: float = 0.5, weighted: bool = False, seed: int = 0
) -> Mixture:
    """Components that lie about one apart, in a unit of thousands."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(components, rows, generator=generator, dtype=torch.float64)
    spread = noise * (0.5 + torch.rand(components, rows, generator=generator, dtype=torch.float64))
    weights = torch.rand(components, rows, generator=generator, dtype=torch.float64)
    shares = weights / weights.sum(dim=0) if weighted else None
    return Mixture(5000.0 + 1000.0 * means, 1000.0 * spread, shares)


def dense_quantiles(mixture: Mixture, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """By a table alone, in the mixture's unit, and which are said to be near enough."""
    standard = StandardMixture.of(mixture.means, mixture.noise, mixture.weights)
    values, settled = standard_quantiles(standard, Goals.of(scores.expand(mixture.means.shape[1], -1)))
    return standard.centre + standard.unit * values, settled


@given(
    st.integers(1, 40),
    st.floats(1e-3, 30.0),
    st.booleans(),
    st.integers(0, 2**32),
    st.lists(st.floats(-6.0, 6.0), min_size=1, max_size=60),
)
@settings(deadline=None, max_examples=40)
def test_those_that_are_said_to_be_near_enough_are(
    components: int, noise: float, weighted: bool, seed: int, scores: list[float]
) -> None:
    some = mixture(components=components, noise=noise, weighted=weighted, seed=seed)
    asked = torch.tensor(scores, dtype=torch.float64)
    values, settled = dense_quantiles(some, asked)
    assert_exact(some, asked, values, tolerance=2e-6, where=settled)
    assert_exact(some, asked, some.quantiles(asked), tolerance=2e-6)


def test_of_one_gaussian_they_are_its_own() -> None:
    one = Mixture(torch.tensor([[3.0]]).double(), torch.tensor([[2.0]]).double())
    values, settled = dense_quantiles(one, LEVELS)
    assert settled.all()
    torch.testing.assert_close(values[0], 3.0 + 2.0 * LEVELS, rtol=0.0, atol=5e-6)


def test_they_rise_with_the_level_in_any_order_of_levels() -> None:
    some = mixture()
    rising = dense_quantiles(some, LEVELS)[0]
    assert (rising.diff(dim=1) > 0.0).all()
    order = torch.randperm(99, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(dense_quantiles(some, LEVELS[order])[0], rising[:, order])
    twice = torch.tensor([0.3, 0.3], dtype=torch.float64)
    first, second = dense_quantiles(some, twice)[0].T
    assert torch.equal(first, second)


def test_few_or_many_rows_at_a_time_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    some = mixture(rows=9, weighted=True)
    whole, _ = dense_quantiles(some, LEVELS)
    monkeypatch.setattr(standard_mixtures, "TILE_VALUES", 1)
    torch.testing.assert_close(dense_quantiles(some, LEVELS)[0], whole, rtol=0.0, atol=5e-3)


def test_a_mixture_that_a_table_misses_is_solved_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    real = callers._search

    def spy(some: StandardMixture, *others: Any) -> tuple[torch.Tensor, torch.Tensor]:
        searched.append(len(some.means))
        return real(some, *others)

    monkeypatch.setattr(callers, "_search", spy)
    smooth = mixture(components=2000, rows=3, noise=1.0)
    staircase = mixture(components=400, rows=8, noise=1e-3)
    smooth.quantiles(LEVELS)
    assert dense_quantiles(smooth, LEVELS)[1].all()
    assert searched == []
    assert not dense_quantiles(staircase, LEVELS)[1].all()
    values = mixture_quantiles(staircase, LEVELS)
    assert sum(searched) > 0
    assert_exact(staircase, LEVELS, values, tolerance=2e-6)


def mixture_quantiles(some: Mixture, scores: torch.Tensor) -> torch.Tensor:
    """By PyTorch, however few they are."""
    asked = scores.expand(some.means.shape[1], -1)
    return callers.mixture_quantiles(some.means, some.noise, some.weights, asked)


def test_noise_may_be_one_for_all_draws() -> None:
    means = mixture().means
    shared = Mixture(means, torch.full((1, 1), 700.0, dtype=torch.float64))
    spelt_out = Mixture(means, torch.full_like(means, 700.0))
    torch.testing.assert_close(dense_quantiles(shared, LEVELS)[0], dense_quantiles(spelt_out, LEVELS)[0])
