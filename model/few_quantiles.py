"""Quantiles of few mixtures on the processor: what `model.mixture_quantiles` does to any number, with less ado.

The arithmetic of one row takes microseconds, calling PyTorch two hundred times takes most of a millisecond. So NumPy is
called here, as seldom as may be, and of few levels all that isn't a sum over components is done by plain numbers.
"""

from __future__ import annotations

import math
from copy import copy
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import torch

from model.quantile_steps import SINGLE, SQRT_HALF, cornish_fisher, score_step, taylor_step, with_gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from model.wide_component import WideComponent

    Doubles = NDArray[np.float64]
    Floats = NDArray[np.float32]

__all__ = ["FEW_VALUES", "few_quantiles"]

FEW_VALUES = 2**18
"""Components times rows times levels: of more than these PyTorch is the faster."""
FEW_LEVELS = 64
"""Rows times levels: of no more than these plain numbers are faster than arrays."""
ROUNDS = 4
BRACKETED_ROUNDS = 40
"""Further ones, for the levels between components far apart that free steps run past."""
FURTHEST_STEP = 1.0
SQRT_PI, SQRT_TWO_PI = math.sqrt(math.pi), math.sqrt(2.0 * math.pi)
STANDARD = NormalDist()


@np.errstate(all="ignore")
def few_quantiles(
    means: Doubles,
    noise: Doubles,
    weights: Doubles | None,
    scores: Doubles,
    wide: WideComponent | None = None,
) -> Doubles | None:
    """Inverts distribution functions, see `model.mixture_quantiles.mixture_quantiles`.

    Args:
        means: ``[C, B]``.
        noise: Standard deviations, broadcastable to ``[C, B]``.
        weights: ``[C, B]``, of sum 1 over C; None: all components weigh the same.
        scores: Normal scores, ``[B, K]``, of at least one row and level.
        wide: One more component; it knows the mean and the standard deviation of the others.

    Returns:
        ``[B, K]``; None where a level takes more than a few steps.
    """
    if np.abs(scores).max(initial=0.0) > SINGLE.furthest_score:
        return None
    mixtures = _FewMixtures(means, noise, weights, wide)
    values = _by_numbers(mixtures, scores) if scores.size <= FEW_LEVELS else _by_arrays(mixtures, scores)
    return None if values is None else mixtures.centre + mixtures.unit * values


class _FewMixtures:
    """See `model.standard_mixtures.StandardMixture`; C components for each of B rows.

    Attributes:
        centre: ``[B, 1]``, float64.
        unit: ``[B, 1]``, float64.
        share: What sums over components are to be multiplied by.
        wide: Precisions of one more component, ``[B]``, float64, if there is one. What is below is without it.
        of_wide: Its weight.
        third: Third central moment, ``[B]``.
        fourth: Fourth one, ``[B]``.
        quartic: ``sum_c(weight_c / width_c^4)``, ``[B]``.
    """

    def __init__(
        self, means: Doubles, noise: Doubles, weights: Doubles | None, wide: WideComponent | None
    ) -> None:
        """Standardises rows, see `few_quantiles`."""
        rows, count = means.T, len(means)
        widths = noise.T if len(noise) == count else np.broadcast_to(noise.T, rows.shape)
        self.share = 1.0 / count if weights is None else 1.0
        self.wide, self.of_wide = None, 0.0
        if wide is not None:
            self.centre, self.unit = wide.means.numpy()[:, None], wide.spreads.numpy()[:, None]
            self.wide, self.of_wide = SQRT_HALF * wide.spreads.numpy() / wide.noise.numpy(), wide.weight
            centred = rows - self.centre
        elif weights is None:
            self.centre = rows.sum(axis=1, keepdims=True) * self.share
            centred = rows - self.centre
            variance = (np.vecdot(centred, centred) + np.vecdot(widths, widths)) * self.share
            self.unit = np.sqrt(variance)[:, None]
        else:
            self.centre = np.vecdot(rows, weights.T)[:, None]
            centred = rows - self.centre
            squares = centred * centred
            squares += widths * widths
            self.unit = np.sqrt(np.vecdot(squares, weights.T))[:, None]
        centred *= 1.0 / self.unit
        standard = centred.astype(np.float32, order="C")
        precisions = np.divide(self.unit * SQRT_HALF, widths, out=centred).astype(np.float32, order="C")
        squares = precisions * precisions
        variances = np.divide(np.float32(0.5), squares)
        inner = standard * standard
        inner += np.float32(3.0) * variances
        if weights is None:
            shares, weighted, first, second = None, inner, precisions, squares
            of_squares = np.vecdot(variances, variances)
        else:
            shares = weights.T.astype(np.float32, order="C")
            weighted, first, second = inner * shares, precisions * shares, squares * shares
            variances *= variances
            of_squares = np.vecdot(variances, shares)
        self.third = np.vecdot(standard, weighted)
        self.fourth = np.vecdot(inner, weighted) - 6.0 * of_squares
        self.quartic = np.vecdot(squares, second)
        self._means, self._precisions = standard[:, None], precisions[:, None]
        self._weights = None if shares is None else shares[:, None]
        self._products = first[:, None], second[:, None], (squares * first)[:, None]

    def take(self, rows: NDArray[np.intp]) -> _FewMixtures:
        """Sums of some rows alone; rising numbers."""
        if len(rows) == len(self._means):
            return self
        some = copy(self)
        some.third, some.fourth, some.quartic = self.third[rows], self.fourth[rows], self.quartic[rows]
        some.wide = None if self.wide is None else self.wide[rows]
        some._means, some._precisions = self._means[rows], self._precisions[rows]
        some._weights = None if self._weights is None else self._weights[rows]
        first, second, third = self._products
        some._products = first[rows], second[rows], third[rows]
        return some

    def bracket(self, row: int, score: float) -> tuple[float, float]:
        """The least and the largest of the components' own quantiles, between which the mixture's lies."""
        own = self._means[row, 0] + np.float32(score * SQRT_HALF) / self._precisions[row, 0]
        least, most = float(own.min()), float(own.max())
        if self.wide is None:
            return least, most
        further = score * SQRT_HALF / float(self.wide[row])
        return min(least, further), max(most, further)

    def sums(self, values: Floats, signs: Floats) -> tuple[Floats, ...]:
        """Sums over the C components, see `model.standard_mixtures.StandardMixture`.

        Args:
            values: ``[B, K]``.
            signs: 1 for the upper tail, -1 for the lower one, ``[B, K]``.

        Returns:
            For tail, density, slope, curvature, and for what is to be taken from the last, ``[B, K]`` each.
        """
        first, second, third = self._products
        place = values[:, :, None] - self._means
        place *= self._precisions
        torch.from_numpy(place).clamp_(-SINGLE.reach, SINGLE.reach)
        bell = place * place
        np.negative(bell, out=bell)
        torch.from_numpy(bell).exp_()
        density, less = np.vecdot(bell, first), np.vecdot(bell, third)
        bell *= place
        slope = np.vecdot(bell, second)
        bell *= place
        curvature = np.vecdot(bell, third)
        place *= signs[:, :, None]
        torch.from_numpy(place).erfc_()
        tail = place.sum(axis=2) if self._weights is None else np.vecdot(place, self._weights)
        return tail, density, slope, curvature, less


def _by_numbers(mixtures: _FewMixtures, scores: Doubles, guesses: Doubles | None = None) -> Doubles | None:
    """Standardised values, ``[B, K]``, level by level, from guesses like them."""
    share, scale, levels = mixtures.share, mixtures.share / SQRT_PI, scores.shape[1]
    wanted, goals, signs, starts, quartics = [], [], [], [], []
    moments = zip(mixtures.third.tolist(), mixtures.fourth.tolist(), mixtures.quartic.tolist(), strict=True)
    for row, (third, fourth, quartic) in zip(scores.tolist(), moments, strict=True):
        skewness, kurtosis = min(max(share * third, -1.0), 1.0), min(max(share * fourth - 3.0, -1.0), 2.0)
        for score in row:
            wanted.append(score)
            goals.append(0.5 * math.erfc(abs(score) * SQRT_HALF))
            signs.append(1.0 if score > 0.0 else -1.0)
            starts.append(cornish_fisher(score, skewness, kurtosis))
            quartics.append(4.0 * share * quartic)
    wide, of_wide = [], mixtures.of_wide
    if mixtures.wide is not None:
        wide = np.repeat(mixtures.wide, levels).tolist()
        quartics = [
            (1.0 - of_wide) * quartic + of_wide * 4.0 * precision**4
            for quartic, precision in zip(quartics, wide, strict=True)
        ]
    starts = starts if guesses is None else guesses.ravel().tolist()
    towards = np.array(signs, dtype=np.float32).reshape(scores.shape)
    values: list[float | None] = [None] * len(wanted)
    rows, indices = np.arange(len(scores)), list(range(len(wanted)))
    brackets: dict[int, tuple[float, float]] = {}
    for turn in range(ROUNDS + BRACKETED_ROUNDS):
        if turn == ROUNDS:
            brackets = {
                index: mixtures.bracket(index // levels, wanted[index])
                for index in indices
                if values[index] is None
            }
        here = np.array([starts[index] for index in indices], dtype=np.float32).reshape(-1, levels)
        found = (part.ravel().tolist() for part in (here, *mixtures.take(rows).sums(here, towards[rows])))
        left = set()
        for index, start, tail, density, slope, curvature, less in zip(indices, *found, strict=True):
            if values[index] is not None:
                continue
            tail *= 0.5 * share
            density *= scale
            slope *= -2.0 * scale
            curvature = 2.0 * scale * (2.0 * curvature - less)
            sign, score = signs[index], wanted[index]
            if wide:
                precision = wide[index]
                place = precision * start
                complement, bell = math.erfc(sign * place), math.exp(-place * place)
                known = with_gaussian(
                    (tail, density, slope, curvature), place, complement, bell, precision, of_wide
                )
                tail, density, slope, curvature = known
            missing = (tail - goals[index]) * sign
            step, near = taylor_step(start, tail, missing, density, slope, curvature, quartics[index], SINGLE)
            if near:
                values[index] = start + step
                continue
            if not (0.0 < tail < 1.0 and density > 0.0):
                return None
            left.add(index // levels)
            reached = STANDARD.inv_cdf(tail)
            steepness = density * SQRT_TWO_PI * math.exp(0.5 * reached * reached)
            step = score_step(-abs(score), reached, steepness, -sign * slope / density)
            starts[index] = start - sign * min(max(step, -FURTHEST_STEP), FURTHEST_STEP)
            if brackets:
                if abs(missing) <= 2.0 * SINGLE.rounding * tail:
                    return None
                lower, upper = brackets[index]
                lower, upper = (start, upper) if missing > 0.0 else (lower, start)
                if upper - lower <= SINGLE.tolerance + 4.0 * SINGLE.grain * abs(start):
                    return None
                brackets[index] = lower, upper
                # Whatever the steps do, every third one halves the bracket.
                if turn % 3 == 2 or not lower < starts[index] < upper:
                    starts[index] = 0.5 * (lower + upper)
        if not left:
            return np.array(values).reshape(scores.shape)
        rows = np.array(sorted(left))
        indices = [row * levels + level for row in sorted(left) for level in range(levels)]
    return None


def _by_arrays(mixtures: _FewMixtures, scores: Doubles) -> Doubles | None:
    """Standardised values, ``[B, K]``, all levels at once for as long as they are many."""
    share, scale = mixtures.share, mixtures.share / SQRT_PI
    outward = np.abs(scores)
    signs = np.where(scores > 0.0, 1.0, -1.0)
    goals = 0.5 * torch.from_numpy(outward * SQRT_HALF).erfc_().numpy()
    skewness, kurtosis = (
        (share * mixtures.third).clip(-1.0, 1.0),
        (share * mixtures.fourth - 3.0).clip(-1.0, 2.0),
    )
    values: Doubles = cornish_fisher(scores, skewness[:, None], kurtosis[:, None])
    rows = np.arange(len(scores))
    for _ in range(ROUNDS):
        some, sign = mixtures.take(rows), signs[rows]
        here = values[rows].astype(np.float32)
        tail, density, slope, curvature, less = np.array(
            some.sums(here, sign.astype(np.float32)), dtype=np.float64
        )
        tail *= 0.5 * share
        density *= scale
        slope *= -2.0 * scale
        curvature = 2.0 * scale * (2.0 * curvature - less)
        start = here.astype(np.float64)
        quartic = (4.0 * share * some.quartic.astype(np.float64))[:, None]
        if some.wide is not None:
            precision, of_wide = some.wide[:, None], some.of_wide
            place = precision * start
            complement = torch.from_numpy(sign * place).erfc_().numpy()
            known = with_gaussian(
                (tail, density, slope, curvature),
                place,
                complement,
                np.exp(-place * place),
                precision,
                of_wide,
            )
            tail, density, slope, curvature = known
            quartic += of_wide * (4.0 * precision**4 - quartic)
        missing = (tail - goals[rows]) * sign
        step, near = taylor_step(start, tail, missing, density, slope, curvature, quartic, SINGLE)
        far = np.nonzero(~near)
        if len(far[0]):
            reached = torch.special.ndtri(torch.from_numpy(tail[far].clip(1e-300, 1.0 - 1e-7))).numpy()
            steepness = density[far] * SQRT_TWO_PI * np.exp(0.5 * reached * reached)
            longer = score_step(-outward[rows][far], reached, steepness, -(sign * slope / density)[far])
            step[far] = -sign[far] * longer.clip(-FURTHEST_STEP, FURTHEST_STEP)
        values[rows] = start + step
        rows = rows[~near.all(axis=1)]
        if not rows.size:
            return values
        if rows.size * scores.shape[1] <= FEW_LEVELS:
            break
    rest = _by_numbers(mixtures.take(rows), scores[rows], values[rows])
    if rest is not None:
        values[rows] = rest
    return None if rest is None else values
