"""Predictive distributions clipped to limits: nothing lies beyond, masses lie on the limits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from murho.model.distributions.mixtures import WideRule
from murho.model.distributions.predictive import Predictive
from murho.model.distributions.transforms import Identity, Limits, Logarithm
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from torch import Tensor

LIMITS = Limits(0.5, 2.0)
KINDS = ["gaussian", "mixture", "wide", "logarithm"]


def _latent(kind: str, limits: Limits | None = None) -> Predictive:
    """Three draws of four rows: inside, at either limit, and far beyond the maximum."""
    generator = torch.Generator().manual_seed(0)
    components = 2 if kind in {"mixture", "logarithm"} else 1
    centres = torch.tensor([1.2, 0.5, 1.9, 30.0])
    transform = Logarithm(0.1, math.log(2.1)) if kind == "logarithm" else Identity()
    means = transform.forward(centres.double()).view(1, 4, 1)
    means = means + 0.2 * torch.randn(3, 4, components, generator=generator).double()
    noise = torch.full((3, 4, components), 0.3).double()
    weights = None
    if components > 1:
        weights = torch.rand(3, 4, components, generator=generator).double()
        weights = weights / weights.sum(dim=2, keepdim=True)
    latent = Predictive.of(means, noise, weights, transform, limits)
    return latent.with_wide(WideRule(0.05, 3.0), 1.0) if kind == "wide" else latent


def _sample(latent: Predictive, count: int = 400_000) -> Tensor:
    """Clipped observations, ``[count, B]``."""
    levels = (torch.arange(count).double() + 0.5) / count
    points = torch.linspace(-12.0, 14.0, 20_001).double()
    rows = []
    for row in range(latent.means.shape[1]):
        below, _ = latent.mixture.of_rows(slice(row, row + 1)).tails(points.unsqueeze(1))
        values = torch.from_numpy(np.interp(levels, below[:, 0], points))
        rows.append(LIMITS.clip(latent.transform.inverse(values)))
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_those_of_clipped_observations(kind: str) -> None:
    latent, limited = _latent(kind), _latent(kind, LIMITS)
    mean, epistemic, aleatoric = limited.moments
    rows = slice(0, 3)  # the points of the sample don't reach the last row
    sample = _sample(latent)[:, rows]
    torch.testing.assert_close(mean[rows], sample.mean(dim=0), rtol=0.0, atol=2e-3)
    torch.testing.assert_close(torch.hypot(epistemic, aleatoric)[rows], sample.std(dim=0), rtol=0.0, atol=3e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_lies_beyond_the_limits(kind: str) -> None:
    limited = _latent(kind, LIMITS)
    quantiles = limited.quantiles(torch.linspace(-4.0, 4.0, 9).double())
    for values in (quantiles, limited.means, limited.moments[0]):
        assert float(values.min()) >= 0.5
        assert float(values.max()) <= 2.0
    assert bool((quantiles.diff(dim=1) >= 0.0).all())
    below, above = limited.tails(torch.tensor([0.4, 0.5, 1.0, 1.9999, 2.0, 3.0]).double())
    assert above[:, 0].tolist() == [1.0] * 4
    assert above[:, 4:].unique().tolist() == [0.0]
    assert above[3, 3] == pytest.approx(1.0, abs=0.06)  # the mass at the maximum
    torch.testing.assert_close(below + above, torch.ones_like(below))


@pytest.mark.parametrize("kind", KINDS)
def test_crps_is_that_of_clipped_observations(kind: str) -> None:
    latent, limited = _latent(kind), _latent(kind, LIMITS)
    sample = _sample(latent, 4_000)[:, :3]
    for value in (0.5, 1.1, 2.0, 2.5):
        targets = torch.full((4,), value).double()
        apart = (sample.unsqueeze(0) - sample[::8].unsqueeze(1)).abs().mean(dim=(0, 1))
        expected = (sample - value).abs().mean(dim=0) - 0.5 * apart
        torch.testing.assert_close(limited.crps(targets)[:3], expected, rtol=0.0, atol=3e-3)


def test_at_a_limit_the_likelihood_is_the_probability_of_the_limit() -> None:
    latent, limited = _latent("gaussian"), _latent("gaussian", LIMITS)
    below, above = latent.tails(torch.tensor([0.5, 2.0]).double())
    for value, mass in ((0.5, below[:, 0]), (2.0, above[:, 1]), (2.7, above[:, 1])):
        found = limited.log_density(torch.full((4,), value).double())
        torch.testing.assert_close(found, mass.clamp_min(1e-300).log())
    inside = torch.full((4,), 1.3).double()
    torch.testing.assert_close(limited.log_density(inside), latent.log_density(inside))


def test_a_band_contains_a_limit_from_its_normal_score_on() -> None:
    limited = _latent("gaussian", LIMITS)
    for limit in (0.5, 2.0):
        scores = limited.normal_score(torch.full((4,), limit).double())
        assert bool((scores >= 0.0).all() if limit == 2.0 else (scores <= 0.0).all())
        for row, reach in enumerate(scores.abs().tolist()):
            for level, contains in ((reach + 1e-3, True), (reach - 1e-3, False)):
                if 0.0 < level < 30.0:
                    low, high = limited.quantiles(torch.tensor([-level, level]).double())[row].tolist()
                    assert (low <= limit <= high) == contains


def test_rows_are_selected_with_their_limits() -> None:
    limited = _latent("wide", LIMITS)
    part = limited.of_rows(torch.tensor([2]))
    scores = torch.tensor([2.0]).double()
    torch.testing.assert_close(part.quantiles(scores)[0], limited.quantiles(scores)[2])
    torch.testing.assert_close(part.moments[1][0], limited.moments[1][2])


def test_a_minimum_must_lie_below_the_maximum() -> None:
    with pytest.raises(OptionError, match="minimum 2 must lie below its maximum 1"):
        Limits(2.0, 1.0)
