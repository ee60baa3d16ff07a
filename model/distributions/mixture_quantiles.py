"""Quantiles of mixtures of Gaussians, each with a bound on its error, whatever the mixture.

A level of a row is solved by Taylor steps (`model.distributions.quantile_steps.taylor_step`) from a guess by the row's
moments. Mostly the first is proved near enough. A few levels where two or three are not go on by themselves, inside a
bracket: in single precision for as long as that can tell, then in double. Rows and levels are worked through a few at a
time, so that memory does not grow with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from murho.model.distributions.quantile_goals import Goals
from murho.model.distributions.quantile_steps import DOUBLE, SINGLE, cornish_fisher
from murho.model.distributions.standard_mixtures import StandardMixture, slices, tile_values

if TYPE_CHECKING:
    from murho.model.distributions.quantile_steps import Precision
    from murho.model.distributions.wide_component import WideComponent

__all__ = ["mixture_quantiles"]

BLOCK_TILES = 16
"""Rows are standardised, and their levels solved, as many as this many tiles hold of their components."""
NUMBERS_A_LEVEL = 32
"""Numbers that are kept of a level while it is solved."""
ROUNDS = 3
FEW = 0.25
"""Share of the levels of rows still worked on below which the open ones are worked on by themselves."""
ITERATIONS = 150


def mixture_quantiles(
    means: Tensor, noise: Tensor, weights: Tensor | None, scores: Tensor, wide: WideComponent | None = None
) -> Tensor:
    """Inverts distribution functions: ``y`` with ``F(y) = Phi(score)``.

    Args:
        means: ``[C, B]``, float64.
        noise: Standard deviations, broadcastable to ``[C, B]``.
        weights: ``[C, B]``, of sum 1 over C; None: all components weigh the same.
        scores: Normal scores, within -37 and 37, ``[B, K]``.
        wide: A component more.

    Returns:
        ``[B, K]``, to 1e-6 of the mixture's standard deviation, or where a distribution function is too flat for that
        to what double precision can tell.
    """
    batch, levels = scores.shape
    values = torch.empty_like(scores)
    most = BLOCK_TILES * tile_values(means.device)
    for rows in slices(batch, most // max(1, len(means), NUMBERS_A_LEVEL * levels)):
        values[rows] = _quantiles(*_of_rows(means, noise, weights, wide, rows), scores[rows])
    return values


def _quantiles(
    means: Tensor, noise: Tensor, weights: Tensor | None, wide: WideComponent | None, scores: Tensor
) -> Tensor:
    """Those of a few rows, see `mixture_quantiles`."""
    mixture, goals = StandardMixture.of(means, noise, weights, wide), Goals.of(scores)
    values, settled = cornish_fisher(scores, *mixture.shape()), torch.zeros_like(scores, dtype=torch.bool)
    _go_on(mixture, goals, values, settled)
    rows, levels = (~settled).nonzero(as_tuple=True)
    if len(rows):
        goals, found = goals.take(rows, levels, None), values[rows, levels, None]
        near = torch.empty_like(found, dtype=torch.bool)
        most = tile_values(means.device) // max(1, len(means))
        for some in slices(len(rows), most):
            found[some], near[some] = _search(mixture.take(rows[some]), goals.take(some), found[some], SINGLE)
        for some in (~near).squeeze(1).nonzero().squeeze(1).split(max(1, most)):
            of_some = _of_rows(means, noise, weights, wide, rows[some])
            double = StandardMixture.of(*of_some, kind=torch.float64)
            found[some], _ = _search(double, goals.take(some), found[some], DOUBLE)
        values[rows, levels] = found.squeeze(1)
    return torch.addcmul(mixture.centre, mixture.unit, values)


def _go_on(mixture: StandardMixture, goals: Goals, values: Tensor, settled: Tensor) -> None:
    """Improves values of levels that aren't settled, as long as there are many in the rows that have some.

    Args:
        mixture: Of B rows.
        goals: ``[B, K]``.
        values: To be improved, likewise.
        settled: Which are near enough, likewise.
    """
    batch, fourth = len(values), mixture.inverse_fourth()
    for _ in range(ROUNDS):
        rows = (~settled).any(dim=1).nonzero().squeeze(1)
        if int((~settled).sum()) <= FEW * len(rows) * values.shape[1]:
            return
        some, some_goals, quartic, start, done = mixture, goals, fourth, values, settled
        if len(rows) < batch:
            some, some_goals, quartic, start, done = (
                mixture.take(rows),
                goals.take(rows),
                fourth[rows],
                values[rows],
                settled[rows],
            )
        start = start.to(mixture.means).double()
        found = some.tails(start, some_goals.signs)
        nearer, near = some_goals.settle(start, found, quartic, SINGLE)
        values[rows] = torch.where(
            done, values[rows], torch.where(near, nearer, some_goals.approach(start, found))
        )
        settled[rows] = done | near


def _search(
    mixture: StandardMixture, goals: Goals, values: Tensor, precision: Precision
) -> tuple[Tensor, Tensor]:
    """Looks for levels, one a row, inside brackets that hold them.

    A step in normal scores that leaves the bracket is replaced by bisection, and so is every third one: the
    bracket shrinks whatever the steps do.

    Args:
        mixture: Of P rows.
        goals: ``[P, 1]``.
        values: Guesses, ``[P, 1]``.
        precision: In which the mixture is.

    Returns:
        Values and whether they are near enough, ``[P, 1]``. In double precision they are as near as that can tell.
    """
    lower, upper = mixture.bracket(goals.scores)
    values = torch.where(values.isfinite(), values, 0.0).clamp_(lower, upper)
    answer, settled = values.clone(), torch.zeros_like(values, dtype=torch.bool)
    rows, fourth, closed = (
        torch.arange(len(values), device=values.device),
        mixture.inverse_fourth(),
        settled.clone(),
    )
    for iteration in range(ITERATIONS):
        values = values.to(mixture.means).double()
        found = mixture.tails(values, goals.signs, precision)
        nearer, near = goals.settle(values, found, fourth, precision)
        missing = goals.missing(found)
        sure = missing.abs() > 2.0 * precision.rounding * found.tail
        lower = torch.where(sure & (missing > 0.0), values, lower)
        upper = torch.where(sure & (missing < 0.0), values, upper)
        middle = 0.5 * (lower + upper)
        best = torch.where(near, nearer, torch.where(sure, middle, values))
        answer[rows], settled[rows] = (
            torch.where(closed, answer[rows], best),
            settled[rows] | (near & ~closed),
        )
        # Far out, neighbouring numbers are further apart than the tolerance.
        least = precision.tolerance + 4.0 * precision.grain * values.abs()
        # No comparison holds for NaN, which there is no use in bisecting.
        closed |= near | ~(sure & (upper - lower > least))
        left = (~closed).squeeze(1).nonzero().squeeze(1)
        if not len(left):
            break
        stepped = goals.approach(values, found)
        inside = (stepped > lower) & (stepped < upper)
        values = middle if iteration % 3 == 2 else torch.where(inside, stepped, middle)
        if 2 * len(left) <= len(rows):
            rows, mixture, goals, fourth = rows[left], mixture.take(left), goals.take(left), fourth[left]
            values, lower, upper, closed = values[left], lower[left], upper[left], closed[left]
    return answer, settled


def _of_rows(
    means: Tensor,
    noise: Tensor,
    weights: Tensor | None,
    wide: WideComponent | None,
    rows: slice | Tensor,
) -> tuple[Tensor, Tensor, Tensor | None, WideComponent | None]:
    """Mixtures of some rows; noise that all rows share stays as it is."""
    shared = noise.shape[-1] == 1
    return (
        means[:, rows],
        noise if shared else noise[..., rows],
        None if weights is None else weights[:, rows],
        None if wide is None else wide.of_rows(rows),
    )
