"""Quantiles by PyTorch agree with bisection for every mixture."""

from __future__ import annotations

import pytest
import torch

from murho.model.distributions import mixtures
from murho.model.distributions.mixtures import Mixture
from tests.model.mixture_references import HARD, SCORES, SMOOTH, assert_exact, make

DENSE = torch.special.ndtri(torch.arange(1, 100, dtype=torch.float64) / 100.0)


@pytest.mark.parametrize("kind", SMOOTH | HARD)
def test_they_are_what_bisection_finds(kind: str) -> None:
    for seed in range(2):
        mixture = make(kind, seed)
        assert_exact(mixture, SCORES, mixture.quantiles(SCORES), tolerance=2e-6)


@pytest.mark.parametrize("kind", SMOOTH | HARD)
def test_many_of_a_row_are_what_bisection_finds(kind: str) -> None:
    mixture = make(kind, 3)
    assert_exact(mixture, DENSE, mixture.quantiles(DENSE), tolerance=2e-6)


@pytest.mark.parametrize("kind", SMOOTH | HARD)
def test_they_are_exact_up_to_the_furthest_scores(kind: str) -> None:
    mixture = make(kind, 4)
    scores = torch.tensor([-35.0, -25.0, -7.5, -6.9, 6.9, 7.5, 25.0, 35.0], dtype=torch.float64)
    assert_exact(mixture, scores, mixture.quantiles(scores))
    furthest = torch.tensor([-37.0, 37.0], dtype=torch.float64)
    tolerance = 1e-3 if "wide" in kind else 1e-4  # there they lie in the wide component
    assert_exact(mixture, furthest, mixture.quantiles(furthest), tolerance)


@pytest.mark.parametrize("kind", ["one component", "identical components"])
def test_of_one_gaussian_they_are_its_own(kind: str) -> None:
    mixture = make(kind)
    scores = torch.cat((SCORES, torch.tensor([-37.0, -12.0, 37.0]).double()))
    own = mixture.means[0].unsqueeze(-1) + mixture.noise[0].unsqueeze(-1) * scores
    error = (mixture.quantiles(scores) - own).abs() / mixture.noise[0].unsqueeze(-1)
    assert float(error.max()) < 1e-5


@pytest.mark.parametrize("kind", SMOOTH | HARD)
def test_a_mixture_gives_them_rising_with_the_level_and_finite(kind: str) -> None:
    mixture = make(kind, 5)
    close = torch.linspace(-1e-6, 1e-6, 21, dtype=torch.float64)
    for scores in (SCORES, DENSE, close, torch.linspace(-37.0, 37.0, 75, dtype=torch.float64)):
        values = mixture.quantiles(scores)
        assert values.isfinite().all()
        assert (values.diff(dim=1) >= 0.0).all()
        turned = (mixture.quantiles(scores.flip(0)).flip(1) - values).abs() / mixture.moments()[1].unsqueeze(-1)
        assert float(turned.max()) <= 2e-6


@pytest.mark.parametrize("scores", [SCORES, DENSE], ids=["few", "many"])
@pytest.mark.parametrize("kind", ["smooth", "weighted", "an outlier", "a mean of ten million"])
def test_a_row_alone_has_those_it_has_among_others(kind: str, scores: torch.Tensor) -> None:
    mixture = make(kind, 6)
    large = Mixture(
        mixture.means.repeat(1, 100),
        mixture.noise.repeat(1, 100) if mixture.noise.shape[1] > 1 else mixture.noise,
        None if mixture.weights is None else mixture.weights.repeat(1, 100),
    )
    spread = mixture.moments()[1].unsqueeze(-1)
    whole = large.quantiles(scores)
    for start in (0, 300, 594):
        for row in range(6):
            alone = mixture.of_rows(slice(row, row + 1)).quantiles(scores)
            difference = (alone - whole[start + row]).abs() / spread[row]
            assert float(difference.max()) <= 1e-5


@pytest.mark.parametrize("kind", ["smooth", "weighted", "a staircase"])
def test_the_number_of_threads_changes_nothing(kind: str, request: pytest.FixtureRequest) -> None:
    mixture = make(kind, 7)
    large = Mixture(
        mixture.means.repeat(1, 60),
        mixture.noise.repeat(1, 60),
        None if mixture.weights is None else mixture.weights.repeat(1, 60),
    )
    alone = large.quantiles(SCORES)
    request.getfixturevalue("two_threads")
    difference = (large.quantiles(SCORES) - alone).abs() / large.moments()[1].unsqueeze(-1)
    assert float(difference.max()) <= 2e-6


def test_every_row_may_have_levels_of_its_own() -> None:
    mixture = make("smooth", 8)
    scores = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_exact(mixture, scores, mixture.quantiles(scores), tolerance=2e-6)
    together = mixture.quantiles(scores)
    for row in range(6):
        alone = mixture.of_rows(slice(row, row + 1)).quantiles(scores[row])
        torch.testing.assert_close(alone[0], together[row], rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("kind", ["weighted", "a staircase, and wide"])
def test_tiles_change_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = make(kind, 9)
    spread = mixture.moments()[1].unsqueeze(-1)
    for scores in (SCORES, DENSE):
        whole = mixture.quantiles(scores)
        with monkeypatch.context() as patch:
            patch.setattr(mixtures, "TILE_VALUES", 64)
            difference = (mixture.quantiles(scores) - whole).abs() / spread
        assert float(difference.max()) <= 2e-6


def test_no_rows_and_no_levels_have_none() -> None:
    none = Mixture(torch.zeros(4, 0).double(), torch.ones(4, 1).double())
    assert none.quantiles(SCORES).shape == (0, len(SCORES))
    assert make("smooth").quantiles(torch.zeros(0)).shape == (6, 0)
