"""Steps towards a quantile of a Gaussian mixture, and a bound on what is left.

Arithmetic alone, so that it serves tensors and, compiled, numbers. All is in units of the mixture's standard
deviation or something near it. ``F`` is the distribution function, ``f`` its density; a tail is ``F`` or ``1 - F``,
whichever the level makes the smaller.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

__all__ = [
    "DOUBLE",
    "SINGLE",
    "SQRT_HALF",
    "Precision",
    "cornish_fisher",
    "score_step",
    "taylor_step",
    "with_gaussian",
]

SQRT_HALF, SQRT_PI = 0.5**0.5, math.pi**0.5
THIRD_DERIVATIVE = 0.5506
"""The largest third derivative of the standard normal density, at 0.742."""


class Precision(NamedTuple):
    """What a tail worked out in some precision is good for.

    Attributes:
        tolerance: The most that a quantile may be wrong, in standard deviations of the mixture.
        rounding: What may be wrong of a tail, of itself.
        grain: What may be wrong of a component's mean, of itself.
        reach: The largest ``|y - mean| / (sqrt(2) width)`` that is told apart: numbers beyond are too small to be
            worked on fast.
        furthest_score: Normal scores further out hang on what is beyond the reach.
    """

    tolerance: float
    rounding: float
    grain: float
    reach: float
    furthest_score: float


SINGLE = Precision(tolerance=8e-7, rounding=1.2e-7, grain=6e-8, reach=6.5, furthest_score=7.0)
DOUBLE = Precision(tolerance=2e-7, rounding=1e-14, grain=1e-15, reach=26.3, furthest_score=37.0)


def cornish_fisher(scores: Any, skewness: Any, kurtosis: Any) -> Any:
    """A standardised distribution's quantiles by its moments (Cornish & Fisher 1938), where these are moderate.

    Args:
        scores: Normal scores of the levels.
        skewness: Third standardised moment.
        kurtosis: The fourth, less 3.
    """
    square = scores * scores
    linear = skewness * ((square - 1.0) * (1.0 / 6.0)) + kurtosis * ((square - 3.0) * scores * (1.0 / 24.0))
    return scores + linear - skewness * skewness * ((2.0 * square - 5.0) * scores * (1.0 / 36.0))


def taylor_step(
    value: Any,
    tail: Any,
    missing: Any,
    density: Any,
    slope: Any,
    curvature: Any,
    fourth: Any,
    precision: Precision,
) -> tuple[Any, Any]:
    """From a value to the quantile by the Taylor series of F up to the cube, and whether that is near enough.

    The series is reverted, and what is then left of the equation is worked out. What the series leaves out is at most
    ``max |phi'''| sum_c(weight_c / width_c^4) step^4 / 24``. If the two together are less than the tolerance times
    the least slope of the series within it, the series with all that may be missing passes the level within the
    tolerance on either side. So does F, for it rises everywhere: the quantile is not further away, whatever the
    mixture. What rounding does is an estimate.

    Args:
        value: ``y``, where the rest is known.
        tail: F or 1 - F.
        missing: What F is still to rise.
        density: ``f``, positive.
        slope: ``f'``.
        curvature: ``f''``.
        fourth: ``sum_c(weight_c / width_c^4)``.
        precision: In which the tail was worked out.

    Returns:
        The step, and whether ``value + step`` is within the tolerance: False for NaN.
    """
    per_density = 1.0 / density
    newton = missing * per_density
    second, third = slope * per_density * 0.5, curvature * per_density * (1.0 / 6.0)
    bend = second * newton
    step = newton - newton * (bend * (1.0 - 2.0 * bend) + third * newton * newton)
    left = step * (1.0 + step * (second + step * third)) - newton
    length = abs(step) + precision.tolerance
    square = length * length
    rounded = precision.rounding * tail + fourth * square * square * (THIRD_DERIVATIVE / 24.0)
    error = abs(left) + per_density * rounded + precision.grain * abs(value)
    steepness = 1.0 + step * (2.0 * second + 3.0 * step * third)
    bent = 2.0 * abs(second) + 6.0 * abs(third) * length
    # A difference, because infinity is no more than infinity.
    return step, error - precision.tolerance * (steepness - precision.tolerance * bent) <= 0.0


def score_step(score: Any, reached: Any, slope: Any, relative_slope: Any) -> Any:
    """From a value to the quantile by Halley's method in normal scores, where a Gaussian is a straight line.

    Args:
        score: The score to reach.
        reached: That of F at the value, ``z = Phi^-1(F)``.
        slope: Its derivative, ``f / phi(z)``.
        relative_slope: ``f' / f``.

    Returns:
        The step; no more than twice and no less than nothing of Newton's.
    """
    newton = (score - reached) / slope
    bend = -0.5 * newton * (relative_slope + reached * slope)
    return newton * (1.0 + bend / (1.0 + abs(bend)))


def with_gaussian(
    known: tuple[Any, Any, Any, Any], place: Any, complement: Any, bell: Any, precision: Any, weight: float
) -> tuple[Any, Any, Any, Any]:
    """Tail, density, slope and curvature of a distribution, one Gaussian about 0 mixed in.

    Args:
        known: Those of the distribution alone.
        place: ``x = a y``, where a is the Gaussian's precision ``1 / (sqrt(2) width)``.
        complement: ``erfc(x)``, or ``erfc(-x)`` for the lower tail.
        bell: ``exp(-x^2)``.
        precision: a.
        weight: Of the Gaussian.
    """
    tail, density, slope, curvature = known
    own_density = precision * bell * (1.0 / SQRT_PI)
    own_slope = -2.0 * precision * place * own_density
    own_curvature = (4.0 * place * place - 2.0) * precision * precision * own_density
    return (
        tail + weight * (0.5 * complement - tail),
        density + weight * (own_density - density),
        slope + weight * (own_slope - slope),
        curvature + weight * (own_curvature - curvature),
    )
