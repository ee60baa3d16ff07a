"""Steps towards a quantile of a Gaussian mixture, with a bound on their error; shared by PyTorch and compiled code.

The functions are only arithmetic, so they take tensors and, compiled, single numbers. Values are in units of the
mixture's standard deviation, or of a number near it. ``F`` is the distribution function, ``f`` its density; a tail is
``F`` or ``1 - F``, whichever is the smaller at the level.
"""

from __future__ import annotations

from typing import Any, NamedTuple

SQRT_HALF = 0.5**0.5
THIRD_DERIVATIVE = 0.5506
"""The largest third derivative of the standard normal density, at 0.742."""


class Precision(NamedTuple):
    """Error limits of quantiles whose tails are computed in single or in double precision.

    Attributes:
        tolerance: The largest error allowed of a quantile, in standard deviations of the mixture.
        rounding: Relative rounding error of a tail.
        grain: Relative rounding error of a component's mean.
        reach: Limit of ``|y - mean| / (sqrt(2) width)``: components beyond it count as if they were there. Beyond it
            densities are so small that arithmetic with them is slow. In double precision they add less than 1e-5 of
            the tail at the furthest score, which moves its quantile by less than 1e-6 standard deviations.
    """

    tolerance: float
    rounding: float
    grain: float
    reach: float


SINGLE = Precision(tolerance=8e-7, rounding=1.2e-7, grain=6e-8, reach=6.5)
DOUBLE = Precision(tolerance=2e-7, rounding=1e-14, grain=1e-15, reach=26.4)


def cornish_fisher(scores: Any, skewness: Any, kurtosis: Any) -> Any:
    """Approximate quantiles of a standardised distribution of moderate moments (Cornish & Fisher 1938).

    Args:
        scores: Normal scores of the levels.
        skewness: Third standardised moment.
        kurtosis: Fourth standardised moment minus 3.
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
    """Step from a value to the quantile by the cubic Taylor series of F, with a proof of its accuracy.

    The step reverts the series approximately; its residual is computed. The remainder of the series is at most
    ``max |phi'''| sum_c(weight_c / width_c^4) step^4 / 24``. If residual and remainder together are less than the
    tolerance times the least slope of the series within the tolerance, then the series crosses the level within the
    tolerance on either side, whatever its remainder. F rises everywhere, and so crosses it there too: this bounds the
    error for every mixture. Only the part of rounding is an estimate.

    Args:
        value: ``y``, the point of expansion.
        tail: F or 1 - F at ``y``.
        missing: The level minus F at ``y``.
        density: ``f``, positive.
        slope: ``f'``.
        curvature: ``f''``.
        fourth: ``sum_c(weight_c / width_c^4)``.
        precision: Error limits of the precision in which the tail was computed.

    Returns:
        The step, and whether ``value + step`` is within the tolerance: False for NaN.
    """
    per_density = 1.0 / density
    newton = missing * per_density
    second, third = slope * per_density * 0.5, curvature * per_density * (1.0 / 6.0)
    bend = second * newton
    step = newton - newton * (bend * (1.0 - 2.0 * bend) + third * newton * newton)
    residual = step * (1.0 + step * (second + step * third)) - newton
    length = abs(step) + precision.tolerance
    square = length * length
    rounded = precision.rounding * tail + fourth * square * square * (THIRD_DERIVATIVE / 24.0)
    error = abs(residual) + per_density * rounded + precision.grain * abs(value)
    steepness = 1.0 + step * (2.0 * second + 3.0 * step * third)
    bent = 2.0 * abs(second) + 6.0 * abs(third) * length
    # A difference, because an infinite error would pass as no more than an infinite tolerance.
    return step, error - precision.tolerance * (steepness - precision.tolerance * bent) <= 0.0
