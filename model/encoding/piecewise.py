"""Piecewise-linear encoding of numbers over quantile bins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.encoding.bin_edges import bin_edges
from murho.model.encoding.feature_encodings import fill_missing, missing_names, training_range_of_numbers
from murho.model.encoding.scaling import Scale
from murho.model.json_validation import expect_fields, expect_numbers, wrong

if TYPE_CHECKING:
    import numpy.typing as npt

    from murho.model.data.schema import Feature

__all__ = ["PiecewiseLinear"]

_MOST_BINS = 16
# The column of a bin that few training rows reach has little variance: it is scaled up twentyfold at most.
_LEAST_STD = 0.05
# Smallest width of a bin, in standard deviations of the number: division by less overflows.
_LEAST_WIDTH = 1e-150


@dataclass(frozen=True)
class PiecewiseLinear:
    """A standardised number and its piecewise-linear encoding over quantile bins.

    Equation 1 of Gorishniy, Rubachev and Babenko 2022 (arXiv 2203.05556): with the bin edges b_0 < … < b_T, column t is
    (x - b_{t-1}) / (b_t - b_{t-1}), clipped at 0 below its bin unless t = 1, and at 1 above it unless t = T. So the
    encoding continues linearly beyond the outer edges. The edges are quantiles of the training rows or, in columns of
    mostly one value, quantiles of the others (`bin_edges`). Each column is then standardised. With fewer than two bins,
    the standardised number is the only column.

    Attributes:
        feature: The feature.
        scale: Standardises the number.
        edges: b_0, …, b_T, standardised; empty with fewer than two bins.
        columns: Scale of each bin's column, T of them.
    """

    feature: Feature
    scale: Scale
    edges: tuple[float, ...]
    columns: tuple[Scale, ...]

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
    def names(self) -> tuple[str, ...]:
        """The feature's name, one name per bin and, if it accepts missing cells, the name of the indicator."""
        name = self.feature.name
        bins = (f"{name} bin {number}" for number in range(1, len(self.columns) + 1))
        return (name, *bins, *missing_names(self.feature))

    def training_range(self) -> npt.NDArray[np.float32]:
        """Smallest and largest value of each encoded column in training (`feature_encodings.FeatureEncoding`)."""
        return training_range_of_numbers(self, self.feature, 1 + len(self.columns))

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

    def encode(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Write the encoding of the column ``[B]`` into ``out``."""
        floors, ceilings, offsets, slopes = self._lines
        columns = np.maximum(self.scale.apply(column)[:, None], floors)
        np.minimum(columns, ceilings, out=columns)
        columns -= offsets
        columns *= slopes
        out[:, : len(slopes)] = columns
        if self.feature.missing:
            fill_missing(column, out)

    def to_json(self) -> dict[str, Any]:
        """Return scale, edges and the bins' scales."""
        return {
            "scale": self.scale.to_json(),
            "edges": list(self.edges),
            "means": [column.mean for column in self.columns],
            "stds": [column.std for column in self.columns],
        }

    @classmethod
    def from_json(cls, feature: Feature, data: object, where: str) -> Self:
        """Read scale, edges and the bins' scales."""
        fields = expect_fields(data, where, ("scale", "edges", "means", "stds"))
        edges = expect_numbers(fields["edges"], f"{where}.edges")
        means = expect_numbers(fields["means"], f"{where}.means")
        stds = expect_numbers(fields["stds"], f"{where}.stds")
        if any(low >= high for low, high in pairwise(edges)) or len(edges) in {1, 2}:
            raise wrong(f"{where}.edges", "no edges, or at least three, each above the one before", edges)
        if not len(means) == len(stds) == max(len(edges) - 1, 0):
            raise wrong(where, "one mean and one std a bin", [means, stds])
        if any(std < _LEAST_STD for std in stds):
            raise wrong(f"{where}.stds", f"numbers of at least {_LEAST_STD}", stds)
        columns = tuple(Scale(mean, std) for mean, std in zip(means, stds, strict=True))
        return cls(feature, Scale.from_json(fields["scale"], f"{where}.scale"), edges, columns)
