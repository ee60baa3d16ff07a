"""Many percentiles at once are those that are found one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model import dense_quantiles as module
from model.dense_quantiles import dense_quantiles
from model.mixtures import Mixture

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


@given(
    st.integers(1, 40),
    st.floats(1e-3, 30.0),
    st.booleans(),
    st.integers(0, 2**32),
    st.lists(st.floats(-6.0, 6.0), min_size=1, max_size=60),
)
@settings(deadline=None)
def test_they_are_what_the_mixture_finds(
    components: int, noise: float, weighted: bool, seed: int, scores: list[float]
) -> None:
    some = mixture(components=components, noise=noise, weighted=weighted, seed=seed)
    asked = torch.tensor(scores, dtype=torch.float64)
    difference = (dense_quantiles(some, asked) - some.quantiles(asked)).abs()
    # In flat parts of a distribution function the value is known less well than the score that it reaches.
    reached = some.normal_score(dense_quantiles(some, asked).T).T
    close = (difference <= 5e-6 * some.moments()[1].unsqueeze(-1)) | ((reached - asked).abs() <= 5e-6)
    assert close.all()


def test_of_one_gaussian_they_are_its_own() -> None:
    one = Mixture(torch.tensor([[3.0]]).double(), torch.tensor([[2.0]]).double())
    torch.testing.assert_close(dense_quantiles(one, LEVELS)[0], 3.0 + 2.0 * LEVELS, rtol=0.0, atol=5e-6)


def test_they_rise_with_the_level_in_any_order_of_levels() -> None:
    some = mixture()
    rising = dense_quantiles(some, LEVELS)
    assert (rising.diff(dim=1) > 0.0).all()
    order = torch.randperm(99, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(dense_quantiles(some, LEVELS[order]), rising[:, order])
    twice = torch.tensor([0.3, 0.3], dtype=torch.float64)
    first, second = dense_quantiles(some, twice).T
    assert torch.equal(first, second)


def test_few_or_many_rows_at_a_time_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    some = mixture(rows=9, weighted=True)
    whole = dense_quantiles(some, LEVELS)
    monkeypatch.setattr(module, "TILE_VALUES", 1)
    torch.testing.assert_close(dense_quantiles(some, LEVELS), whole, rtol=0.0, atol=5e-3)


def test_a_mixture_that_a_table_misses_is_solved_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = Mixture.quantiles

    def spy(self: Mixture, scores: torch.Tensor) -> torch.Tensor:
        asked.append(self.means.shape[1])
        return real(self, scores)

    monkeypatch.setattr(Mixture, "quantiles", spy)
    smooth = mixture(components=24, rows=3, noise=1.0)
    staircase = mixture(components=24, rows=3, noise=1e-3)
    dense_quantiles(smooth, LEVELS)
    assert asked == []
    values = dense_quantiles(staircase, LEVELS)
    assert sum(asked) > 0
    torch.testing.assert_close(values, real(staircase, LEVELS), rtol=1e-6, atol=0.0)


def test_noise_may_be_one_for_all_draws() -> None:
    means = mixture().means
    shared = Mixture(means, torch.full((1, 1), 700.0, dtype=torch.float64))
    spelt_out = Mixture(means, torch.full_like(means, 700.0))
    torch.testing.assert_close(dense_quantiles(shared, LEVELS), dense_quantiles(spelt_out, LEVELS))
