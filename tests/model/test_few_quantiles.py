"""Quantiles of few mixtures by NumPy: exact, or left to others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from model import few_quantiles as module
from model.few_quantiles import few_quantiles
from model.mixtures import Mixture
from tests.model.mixture_references import HARD, SCORES, SMOOTH, assert_exact, make


def few(mixture: Mixture, scores: torch.Tensor) -> torch.Tensor | None:
    """What NumPy makes of a mixture; None where it gives up."""
    weights = None if mixture.weights is None else mixture.weights.numpy()
    asked = scores.expand(mixture.means.shape[1], -1).numpy()
    values = few_quantiles(mixture.means.numpy(), mixture.noise.numpy(), weights, asked, mixture.wide)
    return None if values is None else torch.from_numpy(values)


@pytest.fixture(params=["numbers", "arrays", "arrays, then numbers"])
def few_levels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way of working on them; 66 levels are asked for below."""
    levels = {"numbers": 10_000, "arrays": 0, "arrays, then numbers": 65}[request.param]
    monkeypatch.setattr(module, "FEW_LEVELS", levels)


@pytest.mark.usefixtures("few_levels")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", SMOOTH)
def test_of_smooth_mixtures_they_are_what_bisection_finds(kind: str, seed: int) -> None:
    mixture = make(kind, seed)
    values = few(mixture, SCORES)
    assert values is not None
    assert_exact(mixture, SCORES, values, tolerance=2e-6)


@pytest.mark.usefixtures("few_levels")
@pytest.mark.parametrize("kind", HARD)
def test_of_hard_mixtures_they_are_exact_or_left_to_others(kind: str) -> None:
    given_up = 0
    for seed in range(2):
        mixture = make(kind, seed)
        for row in range(3):
            alone = mixture.of_rows(slice(row, row + 1))
            values = few(alone, SCORES)
            given_up += values is None
            if values is not None:
                assert_exact(alone, SCORES, values)
    if kind in ("two far and narrow spikes", "widths over twelve decades"):
        assert given_up > 0


@pytest.mark.usefixtures("few_levels")
@pytest.mark.parametrize("kind", [kind for kind in HARD if "wide" in kind and "staircase" not in kind])
def test_beside_a_wide_component_ordinary_levels_are_found_in_a_few_steps(kind: str) -> None:
    mixture = make(kind)
    scores = torch.special.ndtri(torch.tensor([1.0, 2.5, 5.0, 25.0, 50.0, 90.0, 99.0]).double() / 100.0)
    values = few(mixture, scores)
    assert values is not None
    assert_exact(mixture, scores, values, tolerance=2e-6)


@pytest.mark.parametrize("seed", [3, 6, 9, 10])
def test_between_components_far_apart_a_bracket_finds_what_free_steps_run_past(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(seed)
    means = torch.from_numpy(4.0 * generator.normal(size=(12, 1)))
    mixture = Mixture(means, torch.from_numpy(np.exp(generator.normal(size=(12, 1)) - 1.2)))
    scores = torch.tensor([-1.6, 0.0, 1.6]).double()
    values = few(mixture, scores)
    assert values is not None
    assert_exact(mixture, scores, values)
    monkeypatch.setattr(module, "BRACKETED_ROUNDS", 0)
    assert few(mixture, scores) is None


@pytest.mark.usefixtures("few_levels")
def test_what_is_beyond_single_precision_is_left_to_others() -> None:
    mixture = make("smooth")
    assert few(mixture, torch.tensor([0.0, 4.5]).double()) is not None
    assert few(mixture, torch.tensor([0.0, 7.1]).double()) is None
    assert few(mixture, torch.tensor([-20.0]).double()) is None


@pytest.mark.usefixtures("few_levels")
def test_numbers_that_are_none_are_left_to_others_without_a_warning() -> None:
    mixture = make("weighted")
    assert mixture.weights is not None
    mixture.means[3, 2] = torch.nan
    assert few(mixture, SCORES) is None
    nothing = Mixture(torch.zeros(4, 2).double(), torch.zeros(4, 2).double())
    assert few(nothing, SCORES) is None


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_take_more_steps_than_others_do_not_change_these(weighted: bool, levels: int) -> None:
    generator = np.random.default_rng(0)
    means = generator.normal(size=(50, 40)) * np.where(np.arange(40) % 8 == 3, 6.0, 0.3)
    noise = np.exp(0.2 * generator.normal(size=(50, 40)))
    weights = generator.dirichlet(np.ones(50), size=40).T.copy() if weighted else None
    scores = np.broadcast_to(np.array([-1.6, 0.0, 2.4])[:levels], (40, levels))
    whole = few_quantiles(means, noise, weights, scores)
    assert whole is not None
    for row in range(40):
        some = slice(row, row + 1)
        alone = few_quantiles(
            means[:, some], noise[:, some], None if weights is None else weights[:, some], scores[some]
        )
        assert alone is not None
        np.testing.assert_allclose(alone, whole[some], rtol=0.0, atol=1e-5)
