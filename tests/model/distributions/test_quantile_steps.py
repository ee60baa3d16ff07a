"""Steps towards quantiles: a step that claims to be accurate is, for every mixture."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from murho.model.distributions.steps import DOUBLE, SINGLE, cornish_fisher, taylor_step
from tests.model.mixture_references import HARD, SCORES, SMOOTH, bisect, make


def test_a_gaussian_s_quantiles_by_its_moments_are_its_scores() -> None:
    assert cornish_fisher(1.7, 0.0, 0.0) == 1.7
    # Of a chi squared distribution of 100 degrees of freedom the 95th percentile is 124.342.
    guess = cornish_fisher(1.6448536, math.sqrt(8.0 / 100.0), 12.0 / 100.0)
    assert 100.0 + math.sqrt(200.0) * guess == pytest.approx(124.342, abs=0.02)


@pytest.mark.parametrize("distance", [1e-7, 1e-3, 0.03, 0.3, 1.0])
@pytest.mark.parametrize("kind", SMOOTH | HARD)
def test_what_is_near_enough_is_within_the_tolerance(kind: str, distance: float) -> None:
    mixture = make(kind)
    centre, unit = (part.unsqueeze(1) for part in mixture.moments())
    means, widths = (
        part.expand_as(mixture.means).unsqueeze(2) / unit for part in (mixture.means - centre.T, mixture.noise)
    )
    shares = mixture.shares.expand_as(mixture.means).unsqueeze(2)
    ends = [(end - centre) / unit for end in bisect(mixture, SCORES)]
    signs = torch.where(SCORES > 0.0, 1.0, -1.0).double().expand_as(ends[0])
    values = ends[0] + distance * torch.linspace(-1.0, 1.0, len(SCORES)).double()
    place = (values - means) / widths
    tails = (shares * 0.5 * torch.erfc(signs * place * 0.5**0.5)).sum(dim=0)
    bells = shares * torch.exp(-0.5 * place.square()) / (2.0 * math.pi) ** 0.5 / widths
    density, slope = bells.sum(dim=0), -(bells * place / widths).sum(dim=0)
    curvature = (bells * (place.square() - 1.0) / widths.square()).sum(dim=0)
    missing = (tails - 0.5 * torch.erfc(SCORES.abs() * 0.5**0.5)) * signs
    fourth = (shares / widths.pow(4)).sum(dim=0)
    step, near = taylor_step(values, tails, missing, density, slope, curvature, fourth, DOUBLE)
    nearer = values + step
    error = torch.maximum(ends[0] - nearer, nearer - ends[1])
    assert (error[near] <= 1.01 * DOUBLE.tolerance).all()
    if kind in SMOOTH and distance <= 1e-3:
        assert near.all()


def test_a_number_that_is_none_is_not_near_enough() -> None:
    known: dict[str, Any] = {
        "tail": 0.4,
        "missing": 0.0,
        "density": 0.39,
        "slope": -0.1,
        "curvature": -0.3,
        "fourth": 1.0,
    }
    assert taylor_step(0.1, **known, precision=SINGLE)[1]
    for name in known:
        assert not taylor_step(0.1, **known | {name: math.nan}, precision=SINGLE)[1], name
