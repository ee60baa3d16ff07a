"""Many quantiles of a row from a table of its distribution function, each with a bound on its error.

Of a hundred levels of a row, neighbours know nearly everything of each other. Two dozen nodes tell F and its first
three derivatives there; between two nodes the polynomial of degree 7 that has these is F but for at most
``max |F^(8)| / 8!`` times the fourth powers of the distances to both (Hermite's interpolation; the bound is that of
Davis 1975, "Interpolation and approximation", theorem 3.5.1). For a mixture no derivative exceeds
``max |phi^(7)| sum_c(weight_c / width_c^8)``, so every value is either proved near enough or a good place to go on
from.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from model.quantile_steps import SINGLE, cornish_fisher

if TYPE_CHECKING:
    from model.quantile_goals import Goals
    from model.standard_mixtures import StandardMixture

__all__ = ["DENSE_LEVELS", "dense_quantiles"]

NODES = 24
DENSE_LEVELS = 2 * NODES
"""Levels of a row from which on a table is worth its nodes."""
MARGIN = 0.05
"""In normal scores: how far the outermost nodes are meant to be beyond the outermost levels."""
SEVENTH_DERIVATIVE = 14.178
"""The largest seventh derivative of the standard normal density."""
NEWTON_STEPS = 3


def dense_quantiles(mixture: StandardMixture, goals: Goals) -> tuple[Tensor, Tensor]:
    """Values at levels, by a table.

    Args:
        mixture: Of B rows, in single precision.
        goals: ``[B, K]``.

    Returns:
        Standardised values and whether they are within the tolerance of single precision, ``[B, K]`` each.
    """
    places = torch.linspace(0.0, 1.0, NODES, dtype=torch.float64, device=goals.scores.device)
    lowest, highest = goals.scores.amin(dim=1, keepdim=True), goals.scores.amax(dim=1, keepdim=True)
    nodes = torch.lerp(lowest - MARGIN, highest + MARGIN, places)
    nodes = cornish_fisher(nodes, *mixture.shape()).sort(dim=1).values.to(mixture.means).double()
    signs = torch.where(nodes > 0.0, 1.0, -1.0).to(nodes)
    found = mixture.tails(nodes, signs)
    scores = torch.special.ndtri(found.tail).mul_(-signs)
    heights = torch.where(signs > 0.0, 1.0 - found.tail, found.tail)
    gaps = nodes.diff(dim=1)
    polynomials = _hermite(heights, found.density, found.slope, found.curvature, gaps)

    inside = (goals.scores >= scores[:, :1]) & (goals.scores <= scores[:, -1:])
    panels = (torch.searchsorted(scores, goals.scores.contiguous()) - 1).clamp_(0, NODES - 2)
    gap, start, end = (part.gather(1, panels) for part in (gaps, scores, scores[:, 1:]))
    terms = [term.gather(1, panels) for term in polynomials]
    wanted = torch.where(goals.signs > 0.0, 1.0 - goals.tails, goals.tails)
    place = (goals.scores - start).div_(end - start).nan_to_num_(0.5).clamp_(0.0, 1.0)
    for _ in range(NEWTON_STEPS):
        height, slope = _evaluate(terms, place)
        place = (place - (height - wanted) / slope).nan_to_num_(0.5).clamp_(0.0, 1.0)
    height, slope = _evaluate(terms, place)

    values = torch.addcmul(nodes.gather(1, panels), place, gap)
    eighth = mixture.inverse_power(8).mul_(SEVENTH_DERIVATIVE / math.factorial(8))
    remainder = eighth * (gap.square() * place * (1.0 - place)).square().square()
    error = (height - wanted).abs() + remainder + SINGLE.rounding * goals.tails
    density = slope / gap
    near = error + (SINGLE.grain * values.abs() - SINGLE.tolerance) * density <= 0.0
    return values, near & inside & (goals.scores.abs() <= SINGLE.furthest_score)


def _hermite(
    heights: Tensor, density: Tensor, slope: Tensor, curvature: Tensor, gaps: Tensor
) -> list[Tensor]:
    """Newton's divided differences between neighbouring nodes, each counted four times.

    Args:
        heights: F at the nodes, ``[B, N]``.
        density: ``f``, likewise.
        slope: ``f'``.
        curvature: ``f''``.
        gaps: Between the nodes, ``[B, N - 1]``.

    Returns:
        Eight ``[B, N - 1]``: the first four multiply powers of the place s between the nodes, 0 to 1, the others
        ``s^4`` times powers of ``s - 1``.
    """
    terms = [
        part * gaps**power / math.factorial(power)
        for sides in (slice(None, -1), slice(1, None))
        for power, part in (
            (power, part[:, sides]) for power, part in enumerate((heights, density, slope, curvature))
        )
    ]
    left, right = terms[:4], terms[4:]
    # The triangle of differences, column by column; where all nodes are the same they are the derivatives.
    column = [right[0] - left[0]]
    for order in (1, 2, 3):
        inner = [after - before for before, after in pairwise(column)]
        column = [column[0] - left[order], *inner, right[order] - column[-1]]
    differences = [*left, column[0]]
    while len(column) > 1:
        column = [after - before for before, after in pairwise(column)]
        differences.append(column[0])
    return differences


def _evaluate(terms: list[Tensor], place: Tensor) -> tuple[Tensor, Tensor]:
    """The polynomials of `_hermite` and their slopes, by Horner's rule."""
    height, slope = terms[7], torch.zeros_like(place)
    for index in (6, 5, 4, 3, 2, 1, 0):
        step = place - 1.0 if index >= 4 else place
        slope = torch.addcmul(height, slope, step)
        height = torch.addcmul(terms[index], height, step)
    return height, slope
