"""Moments of the target where its logarithm was learned, compiled: `model.distributions.transforms.Logarithm.moments`.

Far below the seam they are those of a lognormal; elsewhere they are sums of truncated moments of both sides.
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
