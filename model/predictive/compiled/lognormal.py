"""Moments of the target where its logarithm was learned, compiled: `model.distributions.transforms.Logarithm.moments`.

Far below the seam they are those of a lognormal; elsewhere they are sums of truncated moments of both sides.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from murho.model.predictive.compiled.jit import part, widest_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

__all__ = [
    "complement",
    "exponential_parts",
    "fill_moments",
    "one_moment",
]


FURTHEST = 700.0
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUNDER = 1.5 * 2.0**52
"""Adding a number to it rounds the number to an integer, which is then in the last bits of the sum."""
MANTISSA, ONE = np.int64(52), np.int64(0x3FF0000000000000)
E2, E3, E4, E5, E6 = (1.0 / math.factorial(power) for power in range(2, 7))
E7, E8, E9, E10, E11 = (1.0 / math.factorial(power) for power in range(7, 12))
MIDDLE = 3.75
C = (
    1.2375126308378264,
    -0.1402405985855061,
    0.003585415485781718,
    0.08227673848712364,
    -0.10880393015455231,
    0.09230432122630407,
    -0.058693398387769276,
    0.028362276757789878,
    -0.009746581194305737,
    0.0017556295098350434,
    0.0002937214295671746,
    -0.00029016629854870584,
    5.162601622259853e-05,
    2.2410019228612918e-05,
    -1.1399726074447365e-05,
    -1.0083452170479683e-06,
    1.6959958079430478e-06,
    -2.7749611122883763e-08,
    -2.143069227582364e-07,
    8.526359817483033e-09,
    1.7552176307433927e-08,
)
"""Coefficients of the powers of ``(x - MIDDLE) / (x + MIDDLE)``."""


@part
def exponential_parts(value: float) -> tuple[float, float]:
    """``2^n`` and ``exp(r) - 1`` for ``x = n log(2) + r`` from -700 to 700; the second by its series, to 1e-14.

    ``exp(x)`` is ``2^n (exp(r) - 1) + 2^n``, ``exp(x) - 1`` is ``2^n (exp(r) - 1) + (2^n - 1)``.
    """
    value = min(max(value, -FURTHEST), FURTHEST)
    rounded = value * LOG2_E + ROUNDER
    whole = rounded - ROUNDER
    rest = (value - whole * LN2_HIGH) - whole * LN2_LOW
    series = ((((E11 * rest + E10) * rest + E9) * rest + E8) * rest + E7) * rest + E6
    series = ((((series * rest + E5) * rest + E4) * rest + E3) * rest + E2) * rest * rest + rest
    bits = (np.float64(rounded).view(np.int64) << MANTISSA) + ONE
    return np.int64(bits).view(np.float64), series


@part
def complement(value: float) -> float:
    """``exp(x^2) erfc(x)`` for x >= 0, to a relative error of 1e-14.

    ``(1 + 2 x) exp(x^2) erfc(x)`` is a polynomial in ``(x - 3.75) / (x + 3.75)``, after Shepherd & Laframboise (1981,
    Mathematics of Computation 36, 249-253), here of degree 20 from Chebyshev's series, with an error of 3e-15.
    """
    rising, shifted = 1.0 + 2.0 * value, value + MIDDLE
    reciprocal = 1.0 / (rising * shifted)
    place = (value - MIDDLE) * rising * reciprocal
    series = (((C[20] * place + C[19]) * place + C[18]) * place + C[17]) * place + C[16]
    series = (((series * place + C[15]) * place + C[14]) * place + C[13]) * place + C[12]
    series = (((series * place + C[11]) * place + C[10]) * place + C[9]) * place + C[8]
    series = (((series * place + C[7]) * place + C[6]) * place + C[5]) * place + C[4]
    series = (((series * place + C[3]) * place + C[2]) * place + C[1]) * place + C[0]
    answer: float = series * shifted * reciprocal
    return answer


SQRT_HALF, SQRT_TWO_PI = math.sqrt(0.5), math.sqrt(2.0 * math.pi)
FARTHEST = 1e150
"""Limit of a score, whose square stays finite."""
BLOCK = 256
"""Numbers of a block, which stay in the CPU's first-level cache."""


@part
def _exponential(value: float) -> float:
    power, less_one = exponential_parts(value)
    return power * less_one + power


@part
def _far(mean: float, width: float) -> tuple[float, float]:
    """Mean and standard deviation of the lognormal ``exp(z)``."""
    value = _exponential(mean + 0.5 * width * width)
    power, less_one = exponential_parts(width * width)
    return value, value * math.sqrt(power * less_one + (power - 1.0))


@part
def _below(power: float, mean: float, width: float, seam: float, bell: float) -> float:
    """``E[exp(power z); z < 0] = exp(power mean + (power width)^2 / 2) Phi(seam - power width)``.

    For positive ``x = (power width - seam) / sqrt(2)`` this is ``exp(-seam^2 / 2) exp(x^2) erfc(x) / 2``, which stays
    accurate for tiny Phi. For other x it is the exponential minus this term at ``-x``.
    """
    spread = power * width
    excess = spread - seam
    tail = 0.5 * bell * complement(abs(excess) * SQRT_HALF)
    return tail if excess > 0.0 else _exponential(power * mean + 0.5 * spread * spread) - tail


@part
def _near(mean: float, width: float) -> tuple[float, float]:
    """Mean and standard deviation from the truncated moments of both sides of the seam."""
    seam = min(max(-mean / width, -FARTHEST), FARTHEST)
    bell = _exponential(-0.5 * seam * seam)
    tail = 0.5 * bell * complement(abs(seam) * SQRT_HALF)
    above, density = tail if seam > 0.0 else 1.0 - tail, bell / SQRT_TWO_PI
    line = 1.0 + mean
    first = _below(1.0, mean, width, seam, bell) + line * above + width * density
    second = _below(2.0, mean, width, seam, bell) + (line * line + width * width) * above
    second += width * (2.0 * line + width * seam) * density
    return first, math.sqrt(max(second - first * first, 0.0))


@part
def one_moment(mean: float, width: float, near: float) -> tuple[float, float]:
    """Mean and standard deviation of `fill_moments` for one z."""
    return _near(mean, width) if mean > width * (-near - 2.0 * width) else _far(mean, width)


@part
def fill_moments(means: Doubles, noise: Doubles, values: Doubles, deviations: Doubles, near: float) -> None:
    """Compute mean and standard deviation of ``exp(z)`` below ``z = 0`` and ``1 + z`` above it, for Gaussian z.

    Args:
        means: Means of z, ``[N]``.
        noise: Standard deviations of z, ``[N]``.
        values: To be filled with means, ``[N]``.
        deviations: To be filled with standard deviations, ``[N]``.
        near: Standard deviations below the seam beyond which the moments are those of a lognormal.
    """
    widest_vectors()
    for first in range(0, means.size, BLOCK):
        last = min(first + BLOCK, means.size)
        mean, width, value, deviation = (
            means[first:last],
            noise[first:last],
            values[first:last],
            deviations[first:last],
        )
        near_count = 0
        for index in range(last - first):
            value[index], deviation[index] = _far(mean[index], width[index])
            near_count += mean[index] > width[index] * (-near - 2.0 * width[index])
        if near_count:
            for index in range(last - first):
                near_value, near_deviation = _near(mean[index], width[index])
                is_near = mean[index] > width[index] * (-near - 2.0 * width[index])
                value[index] = near_value if is_near else value[index]
                deviation[index] = near_deviation if is_near else deviation[index]
