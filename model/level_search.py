"""The search for a level of one row's mixture, compiled; the row is standardised."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from model.compiled import part
from model.component_sums import component_sums, exact_component_sums, moment_sums
from model.quantile_steps import (
    DOUBLE,
    SINGLE,
    SQRT_HALF,
    cornish_fisher,
    score_step,
    taylor_step,
    with_gaussian,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]
    Floats = NDArray[np.float32]

__all__ = ["find_levels"]

Real = np.float32
ROUNDS = 4
BRACKETED_ROUNDS = 40
"""Further ones, for the levels between components far apart that free steps run past."""
FURTHEST_STEP = 1.0
SQRT_PI, SQRT_TWO_PI = math.sqrt(math.pi), math.sqrt(2.0 * math.pi)

_cornish_fisher, _score_step = part(cornish_fisher), part(score_step)
_taylor_step, _with_gaussian = part(taylor_step), part(with_gaussian)


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
def _tails(
    sums: tuple[float, float, float, float, float], value: float, sign: float, wide: float, of_wide: float
) -> tuple[float, float, float, float]:
    """Tail, density, slope and curvature, see `model.standard_mixtures.Tails`, from `component_sums`."""
    tail, density, slope, curvature, less = sums
    known = (
        0.5 * tail,
        density / SQRT_PI,
        -2.0 / SQRT_PI * sign * slope,
        2.0 / SQRT_PI * (2.0 * curvature - less),
    )
    if of_wide == 0.0:
        return known
    place = wide * value
    return _with_gaussian(known, place, math.erfc(sign * place), math.exp(-place * place), wide, of_wide)


@part
def _single_tails(
    means: Floats, precisions: Floats, weights: Floats, value: float, sign: float, wide: float, of_wide: float
) -> tuple[float, float, float, float]:
    tail, density, slope, curvature, less = component_sums(
        means, precisions, weights, Real(value), Real(sign)
    )
    sums = float(tail), float(density), float(slope), float(curvature), float(less)
    return _tails(sums, value, sign, wide, of_wide)


@part
def _stepped(score: float, value: float, sign: float, tail: float, density: float, slope: float) -> float:
    """A step towards the level where the series is no good yet."""
    reached = _normal_score(tail)
    steepness = density * SQRT_TWO_PI * math.exp(0.5 * reached * reached)
    step: float = _score_step(-abs(score), reached, steepness, -sign * slope / density)
    return value - sign * min(max(step, -FURTHEST_STEP), FURTHEST_STEP)


@part
def _bracket(
    means: Floats, precisions: Floats, score: float, wide: float, of_wide: float
) -> tuple[float, float]:
    """The least and the largest of the components' own quantiles, between which the mixture's lies."""
    least = most = score * SQRT_HALF / wide if of_wide > 0.0 else means[0] + score * SQRT_HALF / precisions[0]
    for component in range(len(means)):
        own = means[component] + score * SQRT_HALF / precisions[component]
        least, most = min(least, own), max(most, own)
    return least, most


@part
def _quantile(
    means: Floats,
    precisions: Floats,
    weights: Floats,
    score: float,
    guess: float,
    quartic: float,
    wide: float,
    of_wide: float,
) -> tuple[float, bool]:
    """One of a standardised row, and whether it is proved to be near enough."""
    sign = 1.0 if score > 0.0 else -1.0
    goal, value, lower, upper = 0.5 * math.erfc(abs(score) * SQRT_HALF), guess, 0.0, 0.0
    for turn in range(ROUNDS + BRACKETED_ROUNDS):
        if turn == ROUNDS:
            lower, upper = _bracket(means, precisions, score, wide, of_wide)
        value = float(Real(value))
        tail, density, slope, curvature = _single_tails(
            means, precisions, weights, value, sign, wide, of_wide
        )
        missing = (tail - goal) * sign
        step, near = _taylor_step(value, tail, missing, density, slope, curvature, quartic, SINGLE)
        if near:
            return value + step, True
        if not (0.0 < tail < 1.0 and density > 0.0):
            return value, False
        stepped = _stepped(score, value, sign, tail, density, slope)
        if turn >= ROUNDS:
            if abs(missing) <= 2.0 * SINGLE.rounding * tail:
                return value, False
            if missing > 0.0:
                lower = value
            else:
                upper = value
            if upper - lower <= SINGLE.tolerance + 4.0 * SINGLE.grain * abs(value):
                return value, False
            # Whatever the steps do, every third one halves the bracket.
            if turn % 3 == 2 or not lower < stepped < upper:
                stepped = 0.5 * (lower + upper)
        value = stepped
    return value, False


@part
def _exact_quantile(
    means: NDArray[np.floating],
    noise: NDArray[np.floating],
    weights: NDArray[np.floating],
    share: float,
    centre: float,
    unit: float,
    score: float,
    value: float,
    quartic: float,
    wide: float,
    of_wide: float,
) -> tuple[float, bool]:
    """From where single precision came to an end, in double precision; see `exact_component_sums`."""
    sign = 1.0 if score > 0.0 else -1.0
    goal = 0.5 * math.erfc(abs(score) * SQRT_HALF)
    for _ in range(ROUNDS):
        sums = exact_component_sums(means, noise, weights, share, centre, unit, value, sign)
        tail, density, slope, curvature = _tails(sums, value, sign, wide, of_wide)
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
    means: NDArray[np.floating],
    noise: NDArray[np.floating],
    weights: NDArray[np.floating],
    share: float,
    centre: float,
    unit: float,
    wide: float,
    of_wide: float,
    scores: Doubles,
    values: Doubles,
    settled: NDArray[np.bool_],
) -> None:
    """Quantiles of one row's mixture.

    Args:
        own: Means of the components, standardised, ``[C]``.
        precisions: See `model.component_sums.component_sums`, ``[C]``.
        shares: Weights of sum 1, ``[C]``.
        means: Means that are not standardised, ``[C]``, in either precision.
        noise: Standard deviations, likewise.
        weights: Likewise, of sum ``1 / share``.
        share: What the weights are to be multiplied by.
        centre: Mean of the mixture, in the unit of means.
        unit: Its standard deviation.
        wide: Precision of one more component about the mean, standardised.
        of_wide: Its weight; 0: there is none.
        scores: Normal scores of the levels, ``[K]``.
        values: To be filled, ``[K]``, with quantiles in the unit of means, where they are found.
        settled: To be filled, ``[K]``: where they are. Not where a distribution function is too flat.
    """
    sums = moment_sums(own, precisions, shares)
    third, fourth, quartic = float(sums[0]), float(sums[1]), float(sums[2])
    skewness, kurtosis = min(max(third, -1.0), 1.0), min(max(fourth - 3.0, -1.0), 2.0)
    quartic = 4.0 * ((1.0 - of_wide) * quartic + of_wide * wide**4)
    finite = math.isfinite(centre) and 0.0 < unit < math.inf
    for level in range(scores.size):
        score = scores[level]
        if not (finite and abs(score) <= SINGLE.furthest_score):
            settled[level] = False
            continue
        guess = _cornish_fisher(score, skewness, kurtosis)
        value, near = _quantile(own, precisions, shares, score, guess, quartic, wide, of_wide)
        if not near:
            value, near = _exact_quantile(
                means, noise, weights, share, centre, unit, score, value, quartic, wide, of_wide
            )
        values[level], settled[level] = centre + unit * value, near
