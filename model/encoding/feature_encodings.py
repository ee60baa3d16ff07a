"""The contract of an encoding of one feature, and the plain ones: numbers, categories, dates, nothing.

An encoding is fitted to the training rows and encodes each row independently of the others in its batch. If the feature
accepts missing cells, a missing cell (NaN) is 0, the training mean, in every encoded column of the feature, and 1 in a
further indicator column, which the `model.encoding.encoder.Encoder` writes. The Encoder also clips large numbers.

Numbers may be piecewise linear over quantile bins. Nine of ten rows may have a zero, as in a column of amounts that few
people get. Plain quantiles then lie on the zero, and one or two bins are left for all other values. In such a column
(as in LightGBM: Ke et al. 2017) a value that fills a bin alone has an edge of its own, and the quantiles of all other
rows are the other edges.

A network over bins bends easily at their edges and hardly within them. So in a wide bin without training rows it would
draw a line from one end to the other, with little doubt. Such a gap is one bin with its neighbours: then the rows on
both sides tell how the function bends across it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

import numpy as np
from pydantic import PlainSerializer

from murho.model.arrays import Array, Bools, Doubles, Floats, Ints
from murho.model.json_validation import Positive, Stored, Unlimited, one_of
from murho.model.tables.schema import Feature

LARGEST = 1e6
"""Encoded numbers are clipped at ±LARGEST: larger ones could overflow the float32 arithmetic of a network."""
FURTHEST = 5.0
"""Standardised numbers are clipped at ± this many standard deviations, if a training row lies further out.

The distance beyond is an input of its own (`model.encoding.encoder.Ranges`). Without the limit, one cell with a
misplaced decimal point, forty standard deviations out, would distort the whole function."""


FromSchema: TypeAlias = Annotated[Feature, PlainSerializer(lambda feature: feature.name, return_type=str)]
"""The feature of an encoding; in a file its name (`model.encoding.encoder.with_schema`)."""


@dataclass(frozen=True, slots=True)
class Scale(Stored):
    """Standardisation of numbers: ``(x - mean) / std``, clipped to ±limit.

    Attributes:
        mean: Mean of the training rows, in the column's unit.
        std: Standard deviation of the training rows (1/N), above 0, in the column's unit.
        limit: `FURTHEST` if a training row lies further out, otherwise infinite.
    """

    mean: float
    std: Positive
    limit: Unlimited = math.inf

    @classmethod
    def fit(cls, column: Doubles) -> Self:
        """Fit to the cells of ``[N]`` other than NaN; std is 1 if they are all equal, or if there are none."""
        present = column[~np.isnan(column)]
        if present.size == 0:
            return cls(0.0, 1.0)
        if present.min() == present.max():
            return cls(float(present[0]), 1.0)
        # Divide by the largest first: squares of numbers around 1e200 would overflow.
        largest = float(np.abs(present).max())
        shrunk = present / largest
        std = float(shrunk.std()) * largest
        scale = cls(float(shrunk.mean()) * largest, std if std > 0 else 1.0)
        outliers = bool(np.abs(scale.apply(present)).max() > FURTHEST)
        return replace(scale, limit=FURTHEST) if outliers else scale

    def apply(self, column: Doubles) -> Doubles:
        """Return the standardised numbers ``[B]``, clipped to ±limit. NaN stays NaN, and overflow is infinite."""
        with np.errstate(over="ignore"):
            standardised = (column - self.mean) / self.std
        return standardised if math.isinf(self.limit) else np.clip(standardised, -self.limit, self.limit)


class FeatureEncoding(Stored):
    """The contract of an encoding of one feature: it is fitted to a column, applied to others, and kept as fields.

    A subclass is a frozen dataclass with a ``kind``, its name in a file, and the fields that a fit finds. An encoding
    of numbers or dates is a `Scaled` one.

    Attributes:
        feature: The feature.
        kind: Name of the encoding in a file.
    """

    feature: Feature
    kind: str

    @classmethod
    def fit(cls, feature: Feature, column: Array) -> Self:
        """Fit to the training rows' column ``[N]``."""
        raise NotImplementedError

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns: those of the cells and, if the feature accepts missing ones, the indicator."""
        return (*self.cell_names, f"{self.feature.name} is missing") if self.feature.missing else self.cell_names

    @property
    def cell_names(self) -> tuple[str, ...]:
        """Names of the encoded columns without that of the indicator of missing cells."""
        raise NotImplementedError

    @property
    def increasing(self) -> int:
        """How many of the first columns increase with the number; the others are bounded by construction."""
        return len(self.cell_names)

    def training_range(self) -> Floats:
        """Smallest and largest value of each encoded column over the training rows, ``[2, len(names)]``.

        The bounds are infinite for columns that are bounded by construction, such as sines, and without a range.
        """
        bounds = np.full((2, len(self.names)), np.inf, dtype=np.float32)
        bounds[0] = -np.inf
        if self.increasing and self.feature.minimum is not None:
            ends = np.zeros_like(bounds)
            self.write(np.array([self.feature.minimum, self.feature.range_end], dtype=np.float64), ends)
            bounds[:, : self.increasing] = ends[:, : self.increasing]
        return bounds

    def write(self, column: Array, out: Floats) -> None:
        """Write the columns of `cell_names`, the first ones of ``out``; of a missing cell anything.

        Args:
            column: ``[B]``.
            out: ``[B, len(names)]``; the Encoder writes the indicator.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Scaled(FeatureEncoding):
    """An encoding that standardises numbers or dates; it may add further columns.

    Attributes:
        feature: The feature.
        scale: Mean, standard deviation and clipping limit, from the training rows.
    """

    feature: FromSchema
    scale: Scale

    def without_limit(self) -> Self:
        """Copy that clips no number."""
        return replace(self, scale=replace(self.scale, limit=math.inf))


@dataclass(frozen=True)
class Standard(Scaled):
    """A number standardised by the mean and standard deviation of the training rows.

    Attributes:
        bounded: Whether the number is bounded by what it is, such as a pixel: it then has no input for the distance
            beyond its training range (`model.encoding.encoder.Ranges`).
    """

    bounded: bool = False
    kind: Literal["standard"] = "standard"

    @classmethod
    def fit(cls, feature: Feature, column: Array) -> Self:
        """Fit to the training rows' column ``[N]``."""
        return cls(feature, Scale.fit(column))

    @property
    def cell_names(self) -> tuple[str, ...]:
        """The feature's name."""
        return (self.feature.name,)

    def write(self, column: Array, out: Floats) -> None:
        """Write the standardised numbers."""
        out[:, 0] = self.scale.apply(column)


@dataclass(frozen=True)
class Unread(FeatureEncoding):
    """No encoded column: answers do not depend on the feature's value.

    The feature stays one of the schema. A row that is unlike the training rows in it is still found, because the
    distance of rows (`model.encoding.outliers`) is that of all features.
    """

    feature: FromSchema
    kind: Literal["unread"] = "unread"
    names: ClassVar[tuple[str, ...]] = ()
    cell_names: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def fit(cls, feature: Feature, column: Array) -> Self:  # noqa: ARG003
        """There is nothing to fit."""
        return cls(feature)

    def write(self, column: Array, out: Floats) -> None:
        """Write nothing: ``out`` is ``[B, 0]``."""


FEWEST_ROWS_OF_A_LEVEL = 3
"""Categories with fewer training rows share one column: one or two rows teach a weight little. They share it if there
are several, and if some category has more rows."""


@dataclass(frozen=True)
class OneHot(FeatureEncoding):
    """One column for each training category, one for all other categories, and one for missing cells.

    Attributes:
        feature: The feature with its categories, the most frequent ones of the training rows.
        rare: Whether training rows also have other, rarer categories. The column for other categories has then learned
            from these, and treats unseen categories like rare ones.
        pooled: Categories of the feature that have no column of their own, but share the one for other categories.
    """

    feature: FromSchema
    rare: bool = False
    pooled: tuple[str, ...] = ()
    kind: Literal["one-hot"] = "one-hot"

    @classmethod
    def fit(cls, feature: Feature, column: Array) -> Self:
        """Count the categories of the training rows ``[N]``."""
        rows = Counter(column.tolist())
        pooled = tuple(category for category in feature.categories if rows[category] < FEWEST_ROWS_OF_A_LEVEL)
        if len(pooled) < 2 or len(pooled) == len(feature.categories):
            pooled = ()
        return cls(feature, bool(pooled or rows.keys() - {None, *feature.categories}), pooled)

    @cached_property
    def codes(self) -> dict[str | None, int]:
        """Column of each category that has one of its own; -1 for a missing cell."""
        own = (category for category in self.feature.categories if category not in self.pooled)
        return {None: -1, **{category: code for code, category in enumerate(own)}}

    @cached_property
    def others(self) -> int:
        """Number of the column for all other categories."""
        return len(self.codes) - 1

    @property
    def cell_names(self) -> tuple[str, ...]:
        """Names such as ``Origin=USA``, ``Origin is unseen``."""
        name = self.feature.name
        return (*(f"{name}={category}" for category in self.codes if category is not None), f"{name} is unseen")

    def training_range(self) -> Floats:
        """0 and 1 for every column, and 0 for the unseen column unless categories are rare, ``[2, len(names)]``."""
        bounds = np.zeros((2, len(self.names)), dtype=np.float32)
        bounds[1] = 1.0
        bounds[1, self.others] = float(self.rare)
        return bounds

    def write(self, column: Array, out: Floats) -> None:
        """Write 1 into the column of each cell's category, 0 into the others."""
        codes = np.fromiter(map(self.codes.get, column, repeat(self.others)), dtype=np.intp, count=len(column))
        out[:] = 0.0
        out[np.arange(len(codes)), codes] = 1.0


_CYCLES: Mapping[str, int] = MappingProxyType({"month": 12, "weekday": 7, "hour": 24})
_ANGLES = {part: 2 * np.pi * np.arange(length, dtype=np.float64) / length for part, length in _CYCLES.items()}
_SINES_COSINES = {part: np.stack([np.sin(angle), np.cos(angle)], axis=1) for part, angle in _ANGLES.items()}


@dataclass(frozen=True)
class Calendar(Scaled):
    """A date as standardised linear time, and sine and cosine of the calendar parts that vary in training.

    The parts are the month of the year, the day of the week and the hour of the day, in UTC. The day of the week counts
    only if the day of the month varies too: the weekdays of monthly or yearly dates carry no information.
    """

    parts: tuple[Annotated[str, one_of("month", "weekday", "hour")], ...]
    kind: Literal["calendar"] = "calendar"
    increasing: ClassVar[int] = 1

    @classmethod
    def fit(cls, feature: Feature, column: Array) -> Self:
        """Fit to the training rows' column ``[N]``."""
        calendar = _calendar(column[~np.isnan(column)])
        varying = {part for part, values in calendar.items() if np.unique(values).size > 1}
        if "day" not in varying:
            varying.discard("weekday")
        return cls(feature, Scale.fit(column), tuple(part for part in _CYCLES if part in varying))

    @property
    def cell_names(self) -> tuple[str, ...]:
        """Names such as ``Sold``, ``Sold month sine``, ``Sold month cosine``."""
        name = self.feature.name
        return (name, *(f"{name} {part} {wave}" for part in self.parts for wave in ("sine", "cosine")))

    def write(self, column: Array, out: Floats) -> None:
        """Write standardised days, and sines and cosines."""
        out[:, 0] = self.scale.apply(column)
        if self.parts:
            calendar = _calendar(column)
            for position, part in enumerate(self.parts):
                out[:, 1 + 2 * position : 3 + 2 * position] = _SINES_COSINES[part][calendar[part]]


def _calendar(days: Doubles) -> dict[str, Ints]:
    """Return month (0 to 11), day of the month (0 to 30), weekday (Monday is 0) and hour; arbitrary for NaN."""
    # Round to whole seconds first: 13 hours as a fraction of a day may lie just below 13. Years end at ±270,000.
    seconds = np.rint(np.clip(np.nan_to_num(days), -1e8, 1e8) * 86_400).astype(np.int64)
    whole = seconds // 86_400
    dates = whole.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    return {
        "month": months.astype(np.int64) % 12,
        "day": (dates - months.astype("datetime64[D]")).astype(np.int64),
        "weekday": (whole + 3) % 7,  # 1970-01-01 was a Thursday
        "hour": seconds % 86_400 // 3_600,
    }


FEW_BINS = 2
"""Where plain quantiles make no more bins than this, values that fill a bin alone are set apart."""
WIDER = 3.0
"""An empty bin is a gap if it is wider than each of its neighbours by this factor."""
MOST_CODES, ROWS_OF_A_CODE, FEWEST_GAPS = 32, 3, 3
"""Most values of codes, least rows of each on average, and least gaps among them."""
LEAST_ROWS = 30
"""Rows of a bin beside shared values. Where these leave fewer, there are as many bins as plain quantiles would make."""


def bin_edges(numbers: Doubles, most: int) -> Doubles:
    """Return the edges of at most `most` bins, ascending; the first is the smallest number and the last the largest.

    But for gaps, codes, and columns of which most rows share a value, they are the quantiles at 0, 1/`most`, …, 1.

    Codes such as 101, 102, 201, 202, 301 are few values, each of several rows, with several gaps among them. Each value
    is an edge, so that neighbours may have nothing in common.

    Args:
        numbers: The training rows' numbers ``[N]``, finite, at least one.
        most: The most bins, but for codes.
    """
    values, counts = np.unique(numbers, return_counts=True)
    few = len(values) <= min(MOST_CODES, len(numbers) / ROWS_OF_A_CODE)
    if few and _wide(np.diff(values)).sum() >= FEWEST_GAPS:
        return values
    plain = _quantiles(numbers, most)
    if len(plain) > FEW_BINS + 1:
        return _across_gaps(plain, numbers)
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


def _across_gaps(edges: Doubles, numbers: Doubles) -> Doubles:
    """Return the edges without those at the ends of gaps; the outermost stay."""
    values = np.unique(numbers)
    rowless = np.searchsorted(values, edges[:-1], "right") == np.searchsorted(values, edges[1:], "left")
    gaps = rowless & _wide(np.diff(edges))
    at_gap = np.pad(gaps, (0, 1)) | np.pad(gaps, (1, 0))
    at_gap[[0, -1]] = False
    return np.asarray(edges[~at_gap])


def _wide(widths: Doubles) -> Bools:
    """Whether each width is above those of its neighbours by the factor `WIDER`."""
    around = np.pad(widths, 1)
    return np.asarray(widths / WIDER > np.maximum(around[:-2], around[2:]))


def _quantiles(numbers: Doubles, bins: int) -> Doubles:
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
    def fit(cls, feature: Feature, column: Array) -> Self:
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
    def _lines(self) -> tuple[Doubles, ...]:
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

    def write(self, column: Array, out: Floats) -> None:
        """Write the standardised number and its bins."""
        floors, ceilings, offsets, slopes = self._lines
        columns = np.maximum(self.scale.apply(column)[:, None], floors)
        np.minimum(columns, ceilings, out=columns)
        columns -= offsets
        columns *= slopes
        out[:, : len(slopes)] = columns
