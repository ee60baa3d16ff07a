"""The search for a level of one row's mixture, compiled; the row is standardised."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from murho.model.distributions.quantile_steps import (
    DOUBLE,
    SINGLE,
    SQRT_HALF,
    cornish_fisher,
    score_step,
    taylor_step,
)
from murho.model.engines.compiled.jit import part
from murho.model.engines.compiled.mixture_sums import moment_sums
from murho.model.engines.compiled.moments_kernel import is_finite
from murho.model.engines.compiled.tail_kernel import exact_tails, single_tails

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.engines.compiled.moments_kernel import Scale

    Doubles = NDArray[np.float64]
    Floats = NDArray[np.float32]
    Reals = NDArray[np.floating]
    Known = tuple[float, float, float, float, float, float]

__all__ = ["find_levels"]

Real = np.float32
ROUNDS = 4
BRACKETED_ROUNDS = 40
"""Further ones, for the levels between components far apart that free steps run past."""
FURTHEST_STEP = 1.0
CLOSE = 0.25
"""A step that the series from another level is trusted with, for a guess."""
SQRT_TWO_PI = math.sqrt(2.0 * math.pi)

NOTHING = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""What is known before the first level: a value, its sign, and the tail, density, slope and curvature there."""

_cornish_fisher, _score_step, _taylor_step = part(cornish_fisher), part(score_step), part(taylor_step)


@part
def _normal_score(probability: float) -> float:
    """``Phi^-1`` to 5e-4 (Abramowitz & Stegun 1964, 26.2.23): enough for a step."""
    tail = min(probability, 1.0 - probability)
    root = math.sqrt(-2.0 * math.log(tail))
    value = root - (2.515517 + root * (0.802853 + root * 0.010328)) / (
        1.0 + root * (1.432788 + root * (0.189269 + root * 0.001308))
    )
    return -value if probability < 0.5 else value


@part
def _stepped(score: float, value: float, sign: float, tail: float, density: float, slope: float) -> float:
    """A step towards the level where the series is no good yet."""
    reached = _normal_score(tail)
    steepness = density * SQRT_TWO_PI * math.exp(0.5 * reached * reached)
    step: float = _score_step(-abs(score), reached, steepness, -sign * slope / density)
    return value - sign * min(max(step, -FURTHEST_STEP), FURTHEST_STEP)


@part
def _bracket(own: Floats, precisions: Floats, scale: Scale, score: float) -> tuple[float, float]:
    """The least and the largest of the components' own quantiles, between which the mixture's lies."""
    reach = score * SQRT_HALF
    least = most = reach / scale.wide if scale.of_wide > 0.0 else own[0] + reach / precisions[0]
    for component in range(len(own)):
        value = own[component] + reach / precisions[component]
        least, most = min(least, value), max(most, value)
    return least, most


@part
def _quantile(
    own: Floats, precisions: Floats, shares: Floats, scale: Scale, score: float, guess: float, quartic: float
) -> tuple[float, bool, Known]:
    """One of a standardised row, whether it is proved to be near enough, and what is known where it was looked for."""
    sign = 1.0 if score > 0.0 else -1.0
    goal, value, lower, upper = 0.5 * math.erfc(abs(score) * SQRT_HALF), guess, 0.0, 0.0
    known = NOTHING
    for turn in range(ROUNDS + BRACKETED_ROUNDS):
        if turn == ROUNDS:
            lower, upper = _bracket(own, precisions, scale, score)
        value = float(Real(value))
        tail, density, slope, curvature = single_tails(own, precisions, shares, scale, value, sign)
        known = value, sign, tail, density, slope, curvature
        missing = (tail - goal) * sign
        step, near = _taylor_step(value, tail, missing, density, slope, curvature, quartic, SINGLE)
        if near:
            return value + step, True, known
        if not (0.0 < tail < 1.0 and density > 0.0):
            return value, False, known
        stepped = _stepped(score, value, sign, tail, density, slope)
        if turn >= ROUNDS:
            if abs(missing) <= 2.0 * SINGLE.rounding * tail:
                return value, False, known
            if missing > 0.0:
                lower = value
            else:
                upper = value
            if upper - lower <= SINGLE.tolerance + 4.0 * SINGLE.grain * abs(value):
                return value, False, known
            # Whatever the steps do, every third one halves the bracket.
            if turn % 3 == 2 or not lower < stepped < upper:
                stepped = 0.5 * (lower + upper)
        value = stepped
    return value, False, known


@part
def _from_known(known: Known, score: float, quartic: float) -> tuple[float, bool]:
    """The same by the series from where another level was looked for; NaN, False if that was in the other tail."""
    value, sign, tail, density, slope, curvature = known
    if score * sign <= 0.0:
        return math.nan, False
    missing = (tail - 0.5 * math.erfc(abs(score) * SQRT_HALF)) * sign
    step, near = _taylor_step(value, tail, missing, density, slope, curvature, quartic, SINGLE)
    return value + step, near


@part
def _exact_quantile(
    means: Reals, noise: Reals, weights: Reals, scale: Scale, score: float, value: float, quartic: float
) -> tuple[float, bool]:
    """From where single precision came to an end, in double precision."""
    sign = 1.0 if score > 0.0 else -1.0
    goal = 0.5 * math.erfc(abs(score) * SQRT_HALF)
    for _ in range(ROUNDS):
        tail, density, slope, curvature = exact_tails(means, noise, weights, scale, value, sign)
        missing = (tail - goal) * sign
        step, near = _taylor_step(value, tail, missing, density, slope, curvature, quartic, DOUBLE)
        if near:
            return value + step, True
        if not (0.0 < tail < 1.0 and density > 0.0):
            break
        value = _stepped(score, value, sign, tail, density, slope)
    return value, False


@part
def find_levels(
    own: Floats,
    precisions: Floats,
    shares: Floats,
    means: Reals,
    noise: Reals,
    weights: Reals,
    scale: Scale,
    scores: Doubles,
    values: Doubles,
    settled: NDArray[np.bool_],
) -> None:
    """Quantiles of one row's mixture.

    Levels that lie close to each other are told by the series from the first of them, without a pass over components.

    Args:
        own: Means, standardised, ``[C]``.
        precisions: See `model.engines.compiled.mixture_sums.component_sums`, ``[C]``.
        shares: Weights of sum 1, ``[C]``.
        means: Not standardised, in either precision, ``[C]``.
        noise: Standard deviations, likewise.
        weights: Likewise.
        scale: Of the row.
        scores: Normal scores of the levels, ``[L]``.
        values: To be filled, ``[L]``, with quantiles in the unit of the means, where they are found.
        settled: To be filled, ``[L]``: where they are. Not where a distribution function is too flat.
    """
    sums = moment_sums(own, precisions, shares)
    third, fourth, quartic = float(sums[0]), float(sums[1]), float(sums[2])
    skewness, kurtosis = min(max(third, -1.0), 1.0), min(max(fourth - 3.0, -1.0), 2.0)
    quartic = 4.0 * ((1.0 - scale.of_wide) * quartic + scale.of_wide * scale.wide**4)
    finite, known = is_finite(scale), NOTHING
    for level in range(scores.size):
        score = scores[level]
        if not (finite and abs(score) <= SINGLE.furthest_score):
            settled[level] = False
            continue
        value, near = _from_known(known, score, quartic)
        if not near:
            guess = _cornish_fisher(score, skewness, kurtosis)
            if abs(value - known[0]) <= CLOSE:
                guess = value
            value, near, known = _quantile(own, precisions, shares, scale, score, guess, quartic)
        if not near:
            value, near = _exact_quantile(means, noise, weights, scale, score, value, quartic)
        values[level], settled[level] = scale.centre + scale.unit * value, near
