"""The search for quantiles of one row's standardised mixture, compiled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from murho.model.distributions.steps import (
    DOUBLE,
    SINGLE,
    SQRT_HALF,
    cornish_fisher,
    score_step,
    taylor_step,
    with_gaussian,
)
from murho.model.predictive.compiled.jit import part
from murho.model.predictive.compiled.moments import component_sums, exact_component_sums, is_finite, moment_sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.predictive.compiled.moments import Scale

    Doubles = NDArray[np.float64]
    Floats = NDArray[np.float32]
    Reals = NDArray[np.floating]
    Tails = tuple[float, float, float, float]
    Known = tuple[float, float, float, float, float, float]

__all__ = [
    "exact_tails",
    "find_levels",
    "find_tails",
    "single_tails",
]


Real = np.float32
SQRT_PI = math.sqrt(math.pi)
LEAST_TAIL = 0.5 * math.erfc(SINGLE.furthest_score * SQRT_HALF)
"""Smallest tail in single precision: smaller ones depend on components beyond its reach."""
LOST = 4e-6
"""Largest relative rounding error of a tail in single precision; above it the tail is computed in double precision."""

_with_gaussian = part(with_gaussian)


@part
def single_tails(
    standard_means: Floats, precisions: Floats, shares: Floats, scale: Scale, value: float, sign: float
) -> Tails:
    """Tail, density, slope and curvature in single precision; see `mixture_quantiles.StandardMixture.tails`.

    Args:
        standard_means: Standardised means, ``[C]``.
        precisions: Those of `model.predictive.compiled.moments.component_sums`, ``[C]``.
        shares: Weights of sum 1, ``[C]``.
        scale: Scale of the row.
        value: The point, standardised.
        sign: 1 for the upper tail, -1 for the lower one.
    """
    tail, density, slope, curvature, less = component_sums(standard_means, precisions, shares, Real(value), Real(sign))
    sums = float(tail), float(density), float(slope), float(curvature), float(less)
    return _tails(sums, scale, value, sign)


@part
def exact_tails(means: Reals, noise: Reals, weights: Reals, scale: Scale, value: float, sign: float) -> Tails:
    """Tail, density, slope and curvature in double precision.

    Args:
        means: Not standardised, in either precision, ``[C]``.
        noise: Standard deviations, not standardised, ``[C]``.
        weights: Weights before the factor ``scale.share``, ``[C]``.
        scale: Scale of the row.
        value: The point, standardised.
        sign: 1 for the upper tail, -1 for the lower one.
    """
    sums = exact_component_sums(means, noise, weights, scale.share, scale.centre, scale.unit, value, sign)
    return _tails(sums, scale, value, sign)


@part
def _tails(sums: tuple[float, float, float, float, float], scale: Scale, value: float, sign: float) -> Tails:
    """Tail and derivatives from the sums of `component_sums`, with the wide component."""
    tail, density, slope, curvature, less = sums
    known = (
        0.5 * tail,
        density / SQRT_PI,
        -2.0 / SQRT_PI * sign * slope,
        2.0 / SQRT_PI * (2.0 * curvature - less),
    )
    if scale.of_wide == 0.0:
        return known
    place = scale.wide * value
    complement, bell = math.erfc(sign * place), math.exp(-place * place)
    return _with_gaussian(known, place, complement, bell, scale.wide, scale.of_wide)


@part
def find_tails(
    standard_means: Floats,
    precisions: Floats,
    shares: Floats,
    means: Reals,
    noise: Reals,
    weights: Reals,
    scale: Scale,
    thresholds: Doubles,
    below: Doubles,
    above: Doubles,
) -> None:
    """Compute both tail probabilities at each threshold; the smaller one has a relative error of at most 4e-6.

    Args:
        standard_means: Standardised means, ``[C]``.
        precisions: Those of `model.predictive.compiled.moments.component_sums`, ``[C]``.
        shares: Weights of sum 1, ``[C]``.
        means: Not standardised, in either precision, ``[C]``.
        noise: Standard deviations, not standardised, ``[C]``.
        weights: Weights before the factor ``scale.share``, ``[C]``.
        scale: Scale of the row.
        thresholds: In the unit of the means, ``[T]``.
        below: To be filled with lower tail probabilities, ``[T]``.
        above: To be filled with upper tail probabilities, ``[T]``.
    """
    if not is_finite(scale):
        below[:] = above[:] = math.nan
        return
    for number in range(thresholds.size):
        value = (thresholds[number] - scale.centre) / scale.unit
        sign = 1.0 if value > 0.0 else -1.0
        tail, density, _, _ = single_tails(standard_means, precisions, shares, scale, value, sign)
        least = min(tail, 1.0 - tail)
        lost = SINGLE.rounding * tail + SINGLE.grain * (1.0 + abs(value)) * density
        if not (least >= LEAST_TAIL and lost <= LOST * least):
            tail, _, _, _ = exact_tails(means, noise, weights, scale, value, sign)
        if sign > 0.0:
            below[number], above[number] = 1.0 - tail, tail
        else:
            below[number], above[number] = tail, 1.0 - tail


ROUNDS = 4
"""Free steps towards a quantile."""
BRACKETED_ROUNDS = 40
"""Further steps inside a bracket, for levels between distant components, which free steps overshoot."""
EXACT_ROUNDS = 100
"""Most steps in double precision."""
EXTREME = 5.0
"""Normal score beyond which the search is in double precision from its start: single precision proves few of these."""
MIDDLE_TAIL = 0.4
"""Tail above which the score of `_normal_score` is near enough: close to the median other steps are accurate."""
FURTHEST_STEP = 1.0
CLOSE = 0.25
"""Largest step from another level's quantile whose series gives a good first guess."""
SQRT_TWO_PI = math.sqrt(2.0 * math.pi)

NOTHING = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""`Known` before the first level: a value, its sign, and the tail, density, slope and curvature there."""

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
    """Step towards the level in normal scores, for values where the Taylor series is not accurate yet."""
    reached = _normal_score(tail)
    steepness = density * SQRT_TWO_PI * math.exp(0.5 * reached * reached)
    step: float = _score_step(-abs(score), reached, steepness, -sign * slope / density)
    return value - sign * min(max(step, -FURTHEST_STEP), FURTHEST_STEP)


@part
def _bracket(standard_means: Floats, precisions: Floats, scale: Scale, score: float) -> tuple[float, float]:
    """The smallest and largest quantile of the single components, which bound the mixture's quantile."""
    reach = score * SQRT_HALF
    least = most = reach / scale.wide if scale.of_wide > 0.0 else standard_means[0] + reach / precisions[0]
    for component in range(len(standard_means)):
        value = standard_means[component] + reach / precisions[component]
        least, most = min(least, value), max(most, value)
    return least, most


@part
def _quantile(
    standard_means: Floats,
    precisions: Floats,
    shares: Floats,
    scale: Scale,
    score: float,
    guess: float,
    quartic: float,
) -> tuple[float, bool, Known]:
    """A standardised quantile, whether it is proved to be accurate, and the tail and derivatives behind it."""
    sign = 1.0 if score > 0.0 else -1.0
    goal, value, lower, upper = 0.5 * math.erfc(abs(score) * SQRT_HALF), guess, 0.0, 0.0
    known = NOTHING
    for turn in range(ROUNDS + BRACKETED_ROUNDS):
        if turn == ROUNDS:
            lower, upper = _bracket(standard_means, precisions, scale, score)
        value = float(Real(value))
        tail, density, slope, curvature = single_tails(standard_means, precisions, shares, scale, value, sign)
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
            # Every third step halves the bracket, so that the search ends even where other steps fail.
            if turn % 3 == 2 or not lower < stepped < upper:
                stepped = 0.5 * (lower + upper)
        value = stepped
    return value, False, known


@part
def _from_known(known: Known, score: float, quartic: float) -> tuple[float, bool]:
    """The quantile by the series about another level's quantile; NaN, False if that is in the other tail."""
    value, sign, tail, density, slope, curvature = known
    if score * sign <= 0.0:
        return math.nan, False
    missing = (tail - 0.5 * math.erfc(abs(score) * SQRT_HALF)) * sign
    step, near = _taylor_step(value, tail, missing, density, slope, curvature, quartic, SINGLE)
    return value + step, near


@part
def _exact_score(probability: float) -> float:
    """``Phi^-1`` of a probability up to 0.5 to 1e-9, by a Halley step from `_normal_score`."""
    guess = _normal_score(probability)
    excess = 0.5 * math.erfc(-guess * SQRT_HALF) - probability
    newton = excess * SQRT_TWO_PI * math.exp(0.5 * guess * guess)
    return guess - newton / (1.0 + 0.5 * guess * newton)


@part
def _towards(score: float, known: Known) -> float:
    """The value that Halley's method in normal scores steps to, from a value with its tail and derivatives."""
    value, sign, tail, density, slope, _ = known
    reached = _exact_score(tail) if tail < MIDDLE_TAIL else _normal_score(tail)
    steepness = density * SQRT_TWO_PI * math.exp(0.5 * reached * reached)
    step: float = _score_step(-abs(score), reached, steepness, -sign * slope / density)
    return value - sign * min(max(step, -FURTHEST_STEP), FURTHEST_STEP)


@part
def _exact_quantile(
    means: Reals, noise: Reals, weights: Reals, scale: Scale, score: float, guess: float, quartic: float
) -> tuple[float, bool, Known]:
    """The quantile in double precision, whether it is proved to be accurate, and the tail and derivatives behind it.

    Far out in the tails the density is too small for the proof by the series. There a quantile is accurate if the
    distribution function passes the level within the tolerance, on both sides of which it is computed.
    """
    sign = 1.0 if score > 0.0 else -1.0
    goal = 0.5 * math.erfc(abs(score) * SQRT_HALF)
    lower, upper = _exact_bracket(means, noise, scale, score)
    value = guess if lower < guess < upper else 0.5 * (lower + upper)
    known, best = NOTHING, value
    for turn in range(EXACT_ROUNDS):
        tail, density, slope, curvature = exact_tails(means, noise, weights, scale, value, sign)
        missing = (tail - goal) * sign
        step, near = _taylor_step(value, tail, missing, density, slope, curvature, quartic, DOUBLE)
        usable = 0.0 < tail < 1.0 and density > 0.0
        if usable:
            known = value, sign, tail, density, slope, curvature
            if near:
                return value + step, True, known
            if abs(missing) <= 2.0 * DOUBLE.rounding * tail:
                return value, True, known
        if missing > 0.0:
            lower = max(lower, value)
        else:
            upper = min(upper, value)
        if upper - lower <= DOUBLE.tolerance + 4.0 * DOUBLE.grain * abs(value):
            return min(max(best, lower), upper), True, known
        stepped = _towards(score, known) if usable else math.nan
        best = stepped
        if abs(stepped - value) <= 0.4 * DOUBLE.tolerance:  # beyond the quantile, so that it lies between two values
            stepped = value + math.copysign(0.9 * DOUBLE.tolerance, missing)
        # Every third step halves the bracket, so that the search ends even where other steps fail.
        if (turn >= ROUNDS and turn % 3 == 2) or not lower < stepped < upper:
            stepped = best = 0.5 * (lower + upper)
        value = stepped
    return value, False, known


@part
def _exact_bracket(means: Reals, noise: Reals, scale: Scale, score: float) -> tuple[float, float]:
    """`_bracket` in double precision, a little wider."""
    least = most = (means[0] - scale.centre + score * noise[0]) / scale.unit
    if scale.of_wide > 0.0:
        of_wide = score * SQRT_HALF / scale.wide
        least, most = min(least, of_wide), max(most, of_wide)
    for component in range(means.size):
        value = (means[component] - scale.centre + score * noise[component]) / scale.unit
        least, most = min(least, value), max(most, value)
    margin = 1e-6 * (1.0 + abs(score) + abs(least) + abs(most))
    return least - margin, most + margin


@part
def find_levels(
    standard_means: Floats,
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
    """Compute quantiles of one row's mixture.

    If a level is close to one before it, the series about that one gives its quantile without a pass over components.

    Args:
        standard_means: Standardised means, ``[C]``.
        precisions: Those of `model.predictive.compiled.moments.component_sums`, ``[C]``.
        shares: Weights of sum 1, ``[C]``.
        means: Not standardised, in either precision, ``[C]``.
        noise: Standard deviations, not standardised, ``[C]``.
        weights: Weights before the factor ``scale.share``, ``[C]``.
        scale: Scale of the row.
        scores: Normal scores of the levels, ``[L]``.
        values: To be filled with quantiles in the unit of the means, ``[L]``.
        settled: To be filled, ``[L]``: whether a quantile is proved to be accurate. False where the distribution
            function is too flat.
    """
    sums = moment_sums(standard_means, precisions, shares)
    third, fourth, quartic = float(sums[0]), float(sums[1]), float(sums[2])
    skewness, kurtosis = min(max(third, -1.0), 1.0), min(max(fourth - 3.0, -1.0), 2.0)
    quartic = 4.0 * ((1.0 - scale.of_wide) * quartic + scale.of_wide * scale.wide**4)
    finite, known = is_finite(scale), NOTHING
    for level in range(scores.size):
        score = scores[level]
        if not finite:
            settled[level] = False
            continue
        value, near = _from_known(known, score, quartic)
        guess = value if abs(value - known[0]) <= CLOSE else _cornish_fisher(score, skewness, kurtosis)
        if abs(score) > EXTREME and known[2] > 0.0 and known[1] * score > 0.0:
            guess = _towards(score, known)
        if not near and abs(score) <= EXTREME:
            value, near, known = _quantile(standard_means, precisions, shares, scale, score, guess, quartic)
            guess = value
        if not near:
            value, near, known = _exact_quantile(means, noise, weights, scale, score, guess, quartic)
        values[level], settled[level] = scale.centre + scale.unit * value, near
