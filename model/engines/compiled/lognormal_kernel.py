"""Moments of exponentials that go straight on beyond a seam, compiled: `Logarithm.moments`.

Many numbers at a time: far below the seam those of a lognormal, near it and beyond the truncated ones of either side.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from murho.model.engines.compiled.jit import part, widest_vectors
from murho.model.engines.compiled.special_functions import complement, exponential_parts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

__all__ = ["fill_moments", "one_moment"]

SQRT_HALF, SQRT_TWO_PI = math.sqrt(0.5), math.sqrt(2.0 * math.pi)
FARTHEST = 1e150
"""What is squared stays finite."""
BLOCK = 256
"""Numbers at a time, which stay in the first cache."""


@part
def _exponential(value: float) -> float:
    power, less_one = exponential_parts(value)
    return power * less_one + power


@part
def _far(mean: float, width: float) -> tuple[float, float]:
    """Mean and standard deviation of ``exp(z)``, a lognormal's."""
    value = _exponential(mean + 0.5 * width * width)
    power, less_one = exponential_parts(width * width)
    return value, value * math.sqrt(power * less_one + (power - 1.0))


@part
def _below(power: float, mean: float, width: float, seam: float, bell: float) -> float:
    """``E[exp(power z); z < 0] = exp(power mean + (power width)^2 / 2) Phi(seam - power width)``.

    With x of ``(power width - seam) / sqrt(2)`` that is ``exp(-seam^2 / 2) exp(x^2) erfc(x) / 2`` where x is positive,
    however little Phi is there, and elsewhere the exponential less that of ``-x``.
    """
    spread = power * width
    excess = spread - seam
    tail = 0.5 * bell * complement(abs(excess) * SQRT_HALF)
    return tail if excess > 0.0 else _exponential(power * mean + 0.5 * spread * spread) - tail


@part
def _near(mean: float, width: float) -> tuple[float, float]:
    """Mean and standard deviation by the truncated ones of either side of the seam."""
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
    """`fill_moments` of one z."""
    return _near(mean, width) if mean > width * (-near - 2.0 * width) else _far(mean, width)


@part
def fill_moments(means: Doubles, noise: Doubles, values: Doubles, deviations: Doubles, near: float) -> None:
    """Mean and standard deviation of ``exp(z)`` below ``z = 0`` and ``1 + z`` above it, for Gaussian z.

    Args:
        means: Means of z, ``[N]``.
        noise: Standard deviations of z, ``[N]``.
        values: To be filled with means, ``[N]``.
        deviations: To be filled, ``[N]``.
        near: Standard deviations below the seam from which on there is nothing but the exponential.
    """
    widest_vectors()
    for first in range(0, means.size, BLOCK):
        last = min(first + BLOCK, means.size)
        some, width, value, deviation = (
            means[first:last],
            noise[first:last],
            values[first:last],
            deviations[first:last],
        )
        others = 0
        for index in range(last - first):
            value[index], deviation[index] = _far(some[index], width[index])
            others += some[index] > width[index] * (-near - 2.0 * width[index])
        if others:
            for index in range(last - first):
                found, spread = _near(some[index], width[index])
                is_near = some[index] > width[index] * (-near - 2.0 * width[index])
                value[index] = found if is_near else value[index]
                deviation[index] = spread if is_near else deviation[index]
