"""The tails of one row's mixture at a value, compiled: what is looked for of a level, and told of a threshold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from model.compiled import part
from model.component_sums import component_sums, exact_component_sums
from model.quantile_steps import SINGLE, SQRT_HALF, with_gaussian
from model.row_components import is_finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from model.row_components import Row

    Doubles = NDArray[np.float64]
    Tails = tuple[float, float, float, float]

__all__ = ["exact_tails", "find_tails", "single_tails"]

Real = np.float32
SQRT_PI = math.sqrt(math.pi)
LEAST_TAIL = 0.5 * math.erfc(SINGLE.furthest_score * SQRT_HALF)
"""Smaller ones hang on what is beyond the reach of single precision."""
LOST = 4e-6
"""The most that a tail may be wrong for rounding, of itself, before it is worked out in double precision."""

_with_gaussian = part(with_gaussian)


@part
def single_tails(row: Row, value: float, sign: float) -> Tails:
    """Tail, density, slope and curvature, see `model.standard_mixtures.Tails`, in single precision.

    Args:
        row: The mixture.
        value: Where, standardised.
        sign: 1 for the upper tail, -1 for the lower one.
    """
    tail, density, slope, curvature, less = component_sums(
        row.own, row.precisions, row.shares, Real(value), Real(sign)
    )
    sums = float(tail), float(density), float(slope), float(curvature), float(less)
    return _tails(row, sums, value, sign)


@part
def exact_tails(row: Row, value: float, sign: float) -> Tails:
    """The same in double precision; see `model.component_sums.exact_component_sums`."""
    sums = exact_component_sums(
        row.means, row.noise, row.weights, row.share, row.centre, row.unit, value, sign
    )
    return _tails(row, sums, value, sign)


@part
def _tails(row: Row, sums: tuple[float, float, float, float, float], value: float, sign: float) -> Tails:
    """From the sums of `component_sums`, the wide component mixed in."""
    tail, density, slope, curvature, less = sums
    known = (
        0.5 * tail,
        density / SQRT_PI,
        -2.0 / SQRT_PI * sign * slope,
        2.0 / SQRT_PI * (2.0 * curvature - less),
    )
    if row.of_wide == 0.0:
        return known
    place = row.wide * value
    complement, bell = math.erfc(sign * place), math.exp(-place * place)
    return _with_gaussian(known, place, complement, bell, row.wide, row.of_wide)


@part
def find_tails(row: Row, thresholds: Doubles, below: Doubles, above: Doubles) -> None:
    """How probable a smaller and a larger value are than each threshold, the lesser of the two to 4e-6 of itself.

    Args:
        row: The mixture.
        thresholds: In the unit of its means, ``[T]``.
        below: To be filled, ``[T]``.
        above: Likewise.
    """
    if not is_finite(row):
        below[:] = above[:] = math.nan
        return
    for number in range(thresholds.size):
        value = (thresholds[number] - row.centre) / row.unit
        sign = 1.0 if value > 0.0 else -1.0
        tail, density, _, _ = single_tails(row, value, sign)
        least = min(tail, 1.0 - tail)
        lost = SINGLE.rounding * tail + SINGLE.grain * (1.0 + abs(value)) * density
        if not (least >= LEAST_TAIL and lost <= LOST * least):
            tail, _, _, _ = exact_tails(row, value, sign)
        if sign > 0.0:
            below[number], above[number] = 1.0 - tail, tail
        else:
            below[number], above[number] = tail, 1.0 - tail
