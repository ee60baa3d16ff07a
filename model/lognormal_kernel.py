"""Moments of exponentials that go straight on beyond a seam, compiled: `model.transforms.Logarithm.moments` of a few.

A number at a time. Of many numbers PyTorch's functions are the faster, which work on several at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from model.compiled import compiled, part

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

__all__ = ["lognormal_moments"]

SQRT_HALF, SQRT_TWO_PI = math.sqrt(0.5), math.sqrt(2.0 * math.pi)


@part
def _below_seam(mean: float, noise: float, seam: float, power: float, far: float) -> float:
    """``E[exp(power z); z < 0]``, see `model.transforms`."""
    excess = power * noise - seam
    if excess <= far:
        return 0.5 * math.exp(power * mean + 0.5 * (power * noise) ** 2) * math.erfc(excess * SQRT_HALF)
    # exp(x^2) erfc(x) by its asymptotic series (Abramowitz & Stegun 1964, 7.1.23), to 2e-12 from x = 21 on.
    inverse = 2.0 / (excess * excess)
    series = 1.0 - inverse * (0.5 - inverse * (0.75 - inverse * (1.875 - inverse * 6.5625)))
    return math.exp(-0.5 * seam * seam) * series / (SQRT_TWO_PI * excess)


@compiled("void(float64[:], float64[:], float64, float64, float64[:], float64[:])")
def lognormal_moments(
    means: Doubles, noise: Doubles, near: float, far: float, values: Doubles, variances: Doubles
) -> None:
    """Mean and variance of ``exp(z)`` below ``z = 0`` and ``1 + z`` above it, for Gaussian z.

    Args:
        means: Means of z, ``[N]``.
        noise: Standard deviations of z, ``[N]``.
        near: Standard deviations below the seam from which on there is nothing but the exponential.
        far: Normal scores at which Phi is no longer told from 0; at least 30.
        values: To be filled with means, ``[N]``.
        variances: To be filled, ``[N]``.
    """
    for index in range(means.size):
        mean, width = means[index], noise[index]
        square = width * width
        if mean <= width * (-near - 2.0 * width):
            values[index] = math.exp(mean + 0.5 * square)
            variances[index] = -math.expm1(-square) * math.exp(2.0 * (mean + square))
            continue
        seam = -mean / width
        above = 0.5 * math.erfc(seam * SQRT_HALF)
        density = math.exp(-0.5 * seam * seam) / SQRT_TWO_PI
        line = 1.0 + mean
        first = _below_seam(mean, width, seam, 1.0, far) + line * above + width * density
        second = _below_seam(mean, width, seam, 2.0, far) + (line * line + square) * above
        second += width * (2.0 * line + width * seam) * density
        values[index], variances[index] = first, second - first * first
