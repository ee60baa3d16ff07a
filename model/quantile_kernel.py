"""Quantiles of mixtures, compiled, row by row: a row's are the same whatever rows there are besides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from model.compiled import compiled, part, summing_part, widest_vectors
from model.level_search import find_levels
from model.quantile_steps import SQRT_HALF
from model.row_components import standardise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

__all__ = ["quantiles"]

Real = np.float32
ROWS = TILE = 8
"""Rows, and components, that are copied at a time: as many doubles as a line of the cache."""


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
    widest_vectors()
    mean, variance = 0.0, 0.0
    for component in range(means.size):
        mean += weights[component] * means[component]
    for component in range(means.size):
        distance, width = means[component] - mean, noise[component]
        variance += weights[component] * (distance * distance + width * width)
    return mean, math.sqrt(variance)


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
    mean, width, weight = np.empty((ROWS, count)), np.empty((ROWS, count)), np.empty((ROWS, count))
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
            standardise(mean[row], width[row], weight[row], 1.0, centre, unit, own, precisions, shares)
            find_levels(
                own,
                precisions,
                shares,
                mean[row],
                width[row],
                weight[row],
                1.0,
                centre,
                unit,
                wide,
                of_wide,
                scores[first + row],
                values[first + row],
                settled[first + row],
            )
