"""Histograms of the training rows, from the quantiles that a checkpoint stores: it has no training row.

Between two stored quantiles the rows count as evenly spread, so the bars of a column with many distinct values are a
good approximation; those of one with few are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.encoding.feature_scores import QuantileScores

__all__ = ["BINS", "histogram", "rows_below", "step_of"]

BINS = 30


def rows_below(scores: QuantileScores, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the number of training rows with a smaller value than each of ``values``, the same shape."""
    knots, below, upto = scores.values, scores.below, scores.upto
    place = np.searchsorted(knots, values, side="left")
    inner = np.clip(place, 1, len(knots) - 1) if len(knots) > 1 else np.zeros_like(place)
    before = np.maximum(inner - 1, 0)
    gap = np.where(inner > before, knots[inner] - knots[before], 1.0)
    share = np.clip((values - knots[before]) / gap, 0.0, 1.0)
    counts = upto[before] + (below[inner] - upto[before]) * share
    counts = np.where(place == 0, 0.0, counts)
    return np.asarray(np.where(place == len(knots), float(upto[-1]), counts))


def histogram(scores: QuantileScores, bins: int = BINS) -> dict[str, Any] | None:
    """Returns bars of equal width over the training range, as JSON; None if all training rows have one value.

    Returns:
        ``start`` and ``stop`` of the range, and ``counts`` ``[bins]``, training rows in each bar.
    """
    start, stop = float(scores.values[0]), float(scores.values[-1])
    if not start < stop:
        return None
    counts = rows_below(scores, np.linspace(start, stop, bins + 1))
    counts[-1] = scores.upto[-1]  # the last bar has the largest value too
    return {"start": start, "stop": stop, "counts": [round(float(count), 2) for count in np.diff(counts)]}


def step_of(scores: QuantileScores) -> float | None:
    """Returns 1 for a column that seems to hold whole numbers only, else None."""
    whole = bool((scores.values == np.round(scores.values)).all())
    return 1.0 if whole and scores.values[-1] - scores.values[0] >= 1.0 else None
