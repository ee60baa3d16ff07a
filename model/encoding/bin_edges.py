"""Where the bins of a number end: at quantiles, but for gaps, and for columns of which most rows share a value.

Nine of ten rows may have a zero, as in a column of amounts that few people get. Plain quantiles then lie on the zero,
and one or two bins are left for all other values. In such a column, as in LightGBM (Ke et al. 2017), a value that fills
a bin alone has an edge of its own, and the quantiles of all other rows are the other edges.

A network over bins bends easily at their edges and hardly within them. So in a wide bin without training rows it would
draw a line from one end to the other, with little doubt. Such a gap is one bin with its neighbours: then the rows on
both sides tell how the function bends across it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["bin_edges"]

FEW_BINS = 2
"""Where plain quantiles make no more bins than this, values that fill a bin alone are set apart."""
WIDER = 3.0
"""An empty bin is a gap if it is wider than each of its neighbours by this factor."""
LEAST_ROWS = 30
"""Rows of a bin beside shared values. Where these leave fewer, there are as many bins as plain quantiles would make."""


def bin_edges(numbers: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.float64]:
    """Return the edges of at most `most` bins, ascending; the first is the smallest number and the last the largest.

    But for gaps, and for columns of which most rows share a value, they are the quantiles at 0, 1/`most`, …, 1.

    Args:
        numbers: The training rows' numbers ``[N]``, finite, at least one.
        most: The most bins.
    """
    plain = _quantiles(numbers, most)
    if len(plain) > FEW_BINS + 1:
        return _across_gaps(plain, numbers)
    values, counts = np.unique(numbers, return_counts=True)
    shared = np.zeros(len(values), dtype=bool)
    while True:
        bins = most - int(shared.sum())
        rows = counts[~shared].sum()
        more = ~shared & (counts * bins > rows) if bins > 0 else np.zeros_like(shared)
        if not more.any():
            break
        shared |= more
    if shared.all():
        return values
    if not shared.any():
        return plain
    others = np.repeat(values[~shared], counts[~shared])
    as_plain = -(-len(others) * most // len(numbers))
    bins = min(most - int(shared.sum()), max(as_plain, len(others) // LEAST_ROWS))
    return np.unique(np.concatenate([values[[0, -1]], values[shared], _quantiles(others, bins)]))


def _across_gaps(edges: npt.NDArray[np.float64], numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The edges without those at the ends of gaps; the outermost stay."""
    values, widths = np.unique(numbers), np.diff(edges)
    rowless = np.searchsorted(values, edges[:-1], "right") == np.searchsorted(values, edges[1:], "left")
    around = np.pad(widths, 1)
    gaps = rowless & (widths / WIDER > np.maximum(around[:-2], around[2:]))
    at_gap = np.pad(gaps, (0, 1)) | np.pad(gaps, (1, 0))
    at_gap[[0, -1]] = False
    return np.asarray(edges[~at_gap])


def _quantiles(numbers: npt.NDArray[np.float64], bins: int) -> npt.NDArray[np.float64]:
    # "lower" returns values of training rows, so that no bin is empty.
    return np.unique(np.quantile(numbers, np.linspace(0, 1, bins + 1), method="lower"))
