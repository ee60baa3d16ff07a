"""Quantiles of mixtures, compiled, row by row: a row's are the same whatever rows there are besides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from model.compiled import compiled, part, summing_part
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

__all__ = ["quantiles"]

Real = np.float32
ROWS = TILE = 8
"""Rows, and components, that are copied at a time: as many doubles as a line of the cache."""
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
def _gather(values: Doubles, first: int, rows: int, into: Doubles) -> None:
    """Rows side by side, of ``[C, B]``, to rows one behind the other, ``[ROWS, C]``: a transposition, tile by tile."""
    whole = len(values) // TILE * TILE
    for tile in range(0, whole, TILE):
        for row in range(rows):
            for component in range(tile, tile + TILE):  # always as many, and so without a loop
                into[row, component] = values[component, first + row]
    for component in range(whole, len(values)):
        for row in range(rows):
            into[row, component] = values[component, first + row]


@summing_part
def _moments(means: Doubles, noise: Doubles, weights: Doubles) -> tuple[float, float]:
    """Mean and standard deviation of one row, ``[C]`` each."""
    mean, variance = 0.0, 0.0
    for component in range(means.size):
        mean += weights[component] * means[component]
    for component in range(means.size):
        distance, width = means[component] - mean, noise[component]
        variance += weights[component] * (distance * distance + width * width)
    return mean, math.sqrt(variance)


@part
def _scale(
    means: Doubles,
    inverse: Doubles,
    weights: Doubles,
    centre: float,
    unit: float,
    own: Floats,
    precisions: Floats,
    shares: Floats,
) -> None:
    """One row's components in units of its standard deviation, ``[C]`` each.

    Args:
        means: In the target's unit.
        inverse: One by their noise, likewise.
        weights: Of sum 1.
        centre: The row's mean.
        unit: Its standard deviation.
        own: To be filled with means.
        precisions: To be filled, see `model.component_sums.component_sums`.
        shares: To be filled with weights.
    """
    per_unit = 1.0 / unit
    for component in range(own.size):
        own[component] = (means[component] - centre) * per_unit
        precisions[component] = unit * SQRT_HALF * inverse[component]
        shares[component] = weights[component]


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
    means: Doubles,
    inverse: Doubles,
    weights: Doubles,
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
        sums = exact_component_sums(means, inverse, weights, centre, unit, value, sign)
        tail, density, slope, curvature = _tails(sums, value, sign, wide, of_wide)
        missing = (tail - goal) * sign
        step, near = _taylor_step(value, tail, missing, density, slope, curvature, quartic, DOUBLE)
        if near:
            return value + step, True
        if not (0.0 < tail < 1.0 and density > 0.0):
            break
        value = _stepped(score, value, sign, tail, density, slope)
    return value, False


@compiled(
    "void(float64[:, :], float64[:, :], float64[:, :], float64[:, :], "
    "float64[:], float64[:], float64[:], float64, int64, int64, float64[:, :], boolean[:, :])"
)
def quantiles(
    means: Doubles,
    noise: Doubles,
    weights: Doubles,
    scores: Doubles,
    wide_means: Doubles,
    spreads: Doubles,
    wide_noise: Doubles,
    of_wide: float,
    start: int,
    stop: int,
    values: Doubles,
    settled: NDArray[np.bool_],
) -> None:
    """Inverts distribution functions, see `model.mixture_quantiles.mixture_quantiles`; arrays of any strides.

    Args:
        means: ``[C, B]``.
        noise: Standard deviations, ``[C, B]``, or ``[C, 1]`` for all rows.
        weights: Of sum 1 over C, likewise.
        scores: Normal scores, ``[B, K]``.
        wide_means: Means of one more component and of the others, ``[B]``, if there is one.
        spreads: Standard deviations of the others, ``[B]``, likewise.
        wide_noise: Its own, ``[B]``, likewise.
        of_wide: Its weight; 0: there is none.
        start: First row to work on.
        stop: The row behind the last.
        values: To be filled, ``[B, K]``, with quantiles where they were found.
        settled: To be filled, ``[B, K]``: where they were. Not where a distribution function is too flat.
    """
    count = len(means)
    mean, width = np.empty((ROWS, count)), np.empty((ROWS, count))
    inverse, weight = np.empty((ROWS, count)), np.empty((ROWS, count))
    own = np.empty(count, dtype=Real)
    precisions, shares = np.empty_like(own), np.empty_like(own)
    shared, equal = noise.shape[1] == 1, weights.shape[1] == 1
    for row in range(ROWS):
        if shared:
            width[row] = noise[:, 0]
        if equal:
            weight[row] = weights[:, 0]
    for first in range(start, stop, ROWS):
        rows = min(ROWS, stop - first)
        _gather(means, first, rows, mean)
        if not shared:
            _gather(noise, first, rows, width)
        if not equal:
            _gather(weights, first, rows, weight)
        for row in range(rows):
            if of_wide > 0.0:
                centre, unit = wide_means[first + row], spreads[first + row]
                wide = unit * SQRT_HALF / wide_noise[first + row]
            else:
                centre, unit = _moments(mean[row], width[row], weight[row])
                wide = 0.0
            if first == start or not shared:
                for component in range(count):
                    inverse[row, component] = 1.0 / width[row, component]
            _scale(mean[row], inverse[row], weight[row], centre, unit, own, precisions, shares)
            third, fourth, quartic = moment_sums(own, precisions, shares)
            skewness, kurtosis = min(max(third, -1.0), 1.0), min(max(fourth - 3.0, -1.0), 2.0)
            quartic = 4.0 * ((1.0 - of_wide) * quartic + of_wide * wide**4)
            finite = math.isfinite(centre) and 0.0 < unit < math.inf
            for level in range(scores.shape[1]):
                score = scores[first + row, level]
                if not (finite and abs(score) <= SINGLE.furthest_score):
                    settled[first + row, level] = False
                    continue
                guess = _cornish_fisher(score, skewness, kurtosis)
                value, near = _quantile(own, precisions, shares, score, guess, quartic, wide, of_wide)
                if not near:
                    value, near = _exact_quantile(
                        mean[row],
                        inverse[row],
                        weight[row],
                        centre,
                        unit,
                        score,
                        value,
                        quartic,
                        wide,
                        of_wide,
                    )
                values[first + row, level] = centre + unit * value
                settled[first + row, level] = near
