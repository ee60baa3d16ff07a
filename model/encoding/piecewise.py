"""Piecewise-linear encoding of numbers over quantile bins.

Where the bins of a number end: at quantiles, but for gaps, and for columns of which most rows share a value.

Nine of ten rows may have a zero, as in a column of amounts that few people get. Plain quantiles then lie on the zero,
and one or two bins are left for all other values. In such a column, as in LightGBM (Ke et al. 2017), a value that fills
a bin alone has an edge of its own, and the quantiles of all other rows are the other edges.

A network over bins bends easily at their edges and hardly within them. So in a wide bin without training rows it would
draw a line from one end to the other, with little doubt. Such a gap is one bin with its neighbours: then the rows on
both sides tell how the function bends across it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from murho.model.encoding.transforms import Scale, Scaled

if TYPE_CHECKING:
    import numpy.typing as npt

    from murho.model.tables.schema import Feature

__all__ = [
    "PiecewiseLinear",
    "bin_edges",
]


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
    shared, bins = np.zeros(len(values), dtype=bool), most
    while bins > 0 and (more := ~shared & (counts * bins > counts[~shared].sum())).any():
        shared |= more
        bins = most - int(shared.sum())
    if shared.all():
        return values
    others = np.repeat(values[~shared], counts[~shared])
    as_plain = -(-len(others) * most // len(numbers))
    bins = min(bins, max(as_plain, len(others) // LEAST_ROWS))
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


_MOST_BINS = 16
# The column of a bin that few training rows reach has little variance: it is scaled up twentyfold at most.
_LEAST_STD = 0.05
# Smallest width of a bin, in standard deviations of the number: division by less overflows.
_LEAST_WIDTH = 1e-150


@dataclass(frozen=True)
class PiecewiseLinear(Scaled):
    """A standardised number and its piecewise-linear encoding over quantile bins.

    Equation 1 of Gorishniy, Rubachev and Babenko 2022 (arXiv 2203.05556): with the bin edges b_0 < … < b_T, column t is
    (x - b_{t-1}) / (b_t - b_{t-1}), clipped at 0 below its bin unless t = 1, and at 1 above it unless t = T. So the
    encoding continues linearly beyond the outer edges. The edges are quantiles of the training rows or, in columns of
    mostly one value, quantiles of the others (`bin_edges`). Each column is then standardised. With fewer than two bins,
    the standardised number is the only column.

    Attributes:
        edges: b_0, …, b_T, standardised; empty with fewer than two bins.
        columns: Scale of each bin's column, T of them.
    """

    edges: tuple[float, ...]
    columns: tuple[Scale, ...]
    kind: Literal["piecewise"] = "piecewise"

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
        """Fit to the training rows' column ``[N]``."""
        scale = Scale.fit(column)
        numbers = scale.apply(column[~np.isnan(column)])
        if numbers.size == 0:
            return cls(feature, scale, (), ())
        edges = bin_edges(numbers, _MOST_BINS)
        edges = edges[np.diff(edges, prepend=-np.inf) >= _LEAST_WIDTH]
        if edges.size < 3:
            return cls(feature, scale, (), ())
        bins = np.clip((numbers[:, None] - edges[:-1]) / np.diff(edges), 0, 1)
        scales = zip(bins.mean(axis=0).tolist(), bins.std(axis=0).tolist(), strict=True)
        columns = tuple(Scale(mean, max(std, _LEAST_STD)) for mean, std in scales)
        return cls(feature, scale, tuple(edges.tolist()), columns)

    @property
    def cell_names(self) -> tuple[str, ...]:
        """The feature's name, and one name per bin."""
        name = self.feature.name
        return (name, *(f"{name} bin {number}" for number in range(1, len(self.columns) + 1)))

    @cached_property
    def _lines(self) -> tuple[npt.NDArray[np.float64], ...]:
        """Floors, ceilings, offsets and slopes of the columns, each ``[1 + T]``; first those of the number itself.

        A standardised column is the number clipped to its bin, minus an offset, times a slope.
        """
        edges = np.array(self.edges)
        widths = np.diff(edges)
        means = np.array([column.mean for column in self.columns])
        stds = np.array([column.std for column in self.columns])
        floors, ceilings = np.full(1 + len(means), -np.inf), np.full(1 + len(means), np.inf)
        floors[2:], ceilings[1:-1] = edges[1:-1], edges[1:-1]
        offsets = np.concatenate([[0.0], edges[:-1] + means * widths])
        slopes = np.concatenate([[1.0], 1 / (widths * stds)])
        return floors, ceilings, offsets, slopes

    def write(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Write the standardised number and its bins."""
        floors, ceilings, offsets, slopes = self._lines
        columns = np.maximum(self.scale.apply(column)[:, None], floors)
        np.minimum(columns, ceilings, out=columns)
        columns -= offsets
        columns *= slopes
        out[:, : len(slopes)] = columns
