"""Tail probabilities of one row's mixture at a value, compiled: for the search of quantiles, and for thresholds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from murho.model.distributions.quantile_steps import SINGLE, SQRT_HALF, with_gaussian
from murho.model.engines.compiled.jit import part
from murho.model.engines.compiled.mixture_sums import component_sums, exact_component_sums
from murho.model.engines.compiled.moments_kernel import is_finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.engines.compiled.moments_kernel import Scale

    Doubles = NDArray[np.float64]
    Floats = NDArray[np.float32]
    Reals = NDArray[np.floating]
    Tails = tuple[float, float, float, float]

__all__ = ["exact_tails", "find_tails", "single_tails"]

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
        precisions: Those of `model.engines.compiled.mixture_sums.component_sums`, ``[C]``.
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
        precisions: Those of `model.engines.compiled.mixture_sums.component_sums`, ``[C]``.
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
