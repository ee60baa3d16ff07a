"""Encodings of a feature: standardised numbers, one-hot categories, and calendar cycles of dates.

Encoding of dates: linear time, and sine and cosine of the calendar cycles that vary in training.

Encodings of one feature: the protocol of all encodings, standardised numbers and one-hot categories.

An encoding is fitted to the training rows and encodes each row independently of the others in its batch. If the feature
accepts missing cells, a missing cell (NaN) is 0, the training mean, in every encoded column of the feature, and 1 in a
further indicator column. If not, the encoding writes NaN, and `model.encoding.encoder.Encoder` refuses the row. The
Encoder also clips large numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from pydantic import PlainSerializer

from murho.model.json_validation import MisfitError, Positive, Stored, Unlimited, one_of
from murho.model.tables.schema import Feature

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

__all__ = [
    "FURTHEST",
    "Calendar",
    "FeatureEncoding",
    "FromSchema",
    "OneHot",
    "Scale",
    "Scaled",
    "Standard",
    "fill_missing",
    "missing_names",
    "training_range_of_numbers",
]


FURTHEST = 5.0
"""Standardised numbers are clipped at ± this many standard deviations, if a training row lies further out.

The distance beyond is an input of its own (`model.encoding.continuation`). Without the limit, one cell with a
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
    def fit(cls, column: npt.NDArray[np.float64]) -> Self:
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

    def apply(self, column: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the standardised numbers ``[B]``, clipped to ±limit. NaN stays NaN, and overflow is infinite."""
        with np.errstate(over="ignore"):
            standardised = (column - self.mean) / self.std
        return standardised if math.isinf(self.limit) else np.clip(standardised, -self.limit, self.limit)


class FeatureEncoding(Protocol):
    """An encoding of one feature's canonical column."""

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
        """Fit to the training rows' column ``[N]``."""
        ...

    @property
    def feature(self) -> Feature:
        """The feature."""
        ...

    @property
    def kind(self) -> str:
        """Name of the encoding in a file."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        ...

    def training_range(self) -> npt.NDArray[np.float32]:
        """Smallest and largest value of each encoded column over the training rows, ``[2, len(names)]``.

        The bounds are infinite for columns that are bounded by construction, such as sines.
        """
        ...

    def encode(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Write the encoding of the column ``[B]`` into ``out``, ``[B, len(names)]``."""
        ...


@runtime_checkable
class Scaled(Protocol):
    """An encoding that standardises numbers or dates; it may add further columns."""

    @property
    def scale(self) -> Scale:
        """Mean, standard deviation and clipping limit, from the training rows."""
        ...


@dataclass(frozen=True)
class Standard(Stored):
    """A number standardised by the mean and standard deviation of the training rows.

    Attributes:
        feature: The feature.
        scale: Mean, standard deviation and clipping limit.
        bounded: Whether the number is bounded by what it is, such as a pixel: it then has no input for the distance
            beyond its training range (`model.encoding.continuation`).
    """

    feature: FromSchema
    scale: Scale
    bounded: bool = False
    kind: Literal["standard"] = "standard"

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
        """Fit to the training rows' column ``[N]``."""
        return cls(feature, Scale.fit(column))

    @property
    def names(self) -> tuple[str, ...]:
        """The feature's name and, if it accepts missing cells, the name of the indicator."""
        return (self.feature.name, *missing_names(self.feature))

    def training_range(self) -> npt.NDArray[np.float32]:
        """Smallest and largest value of each encoded column in training (`FeatureEncoding.training_range`)."""
        return training_range_of_numbers(self, self.feature, 1)

    def encode(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Write the encoding of the column ``[B]`` into ``out``."""
        out[:, 0] = self.scale.apply(column)
        if self.feature.missing:
            fill_missing(column, out)


FEWEST_ROWS_OF_A_LEVEL = 3
"""Categories with fewer training rows share one column: one or two rows teach a weight little. They share it if there
are several, and if some category has more rows."""


@dataclass(frozen=True)
class OneHot(Stored):
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

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless the pooled categories differ and are the feature's."""
        if len(set(self.pooled)) < len(self.pooled) or not set(self.pooled) <= set(self.feature.categories):
            raise MisfitError("pooled", "categories of the feature that differ", self.pooled)

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
        """Count the categories of the training rows ``[N]``."""
        rows = Counter(column.tolist())
        pooled = tuple(category for category in feature.categories if rows[category] < FEWEST_ROWS_OF_A_LEVEL)
        if len(pooled) < 2 or len(pooled) == len(feature.categories):
            pooled = ()
        return cls(feature, bool(pooled or rows.keys() - {None, *feature.categories}), pooled)

    @cached_property
    def _own(self) -> tuple[str, ...]:
        """The categories that have a column of their own."""
        return tuple(category for category in self.feature.categories if category not in self.pooled)

    @property
    def others(self) -> int:
        """Number of the column for all other categories."""
        return len(self._own)

    @property
    def names(self) -> tuple[str, ...]:
        """Names such as ``Origin=USA``, ``Origin is unseen``, ``Origin is missing``."""
        name = self.feature.name
        levels = (f"{name}={category}" for category in self._own)
        return (*levels, f"{name} is unseen", *missing_names(self.feature))

    def training_range(self) -> npt.NDArray[np.float32]:
        """0 and 1 for every column, and 0 for the unseen column unless categories are rare, ``[2, len(names)]``."""
        bounds = np.zeros((2, len(self.names)), dtype=np.float32)
        bounds[1] = 1.0
        bounds[1, self.others] = float(self.rare)
        return bounds

    @cached_property
    def _levels(self) -> dict[str | None, int]:
        levels: dict[str | None, int] = {value: code for code, value in enumerate(self._own)}
        # Without a column for missing cells, their code is negative, and encode writes NaN.
        levels[None] = len(levels) + 1 if self.feature.missing else -1
        return levels

    def encode(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Write the encoding of the column ``[B]`` of ``str`` or None into ``out``."""
        unseen = self.others
        codes = np.fromiter(map(self._levels.get, column, repeat(unseen)), dtype=np.intp, count=len(column))
        out[:] = 0.0
        out[np.arange(len(codes)), codes] = 1.0
        if not self.feature.missing and codes.size and codes.min() < 0:
            out[codes < 0] = np.nan


def training_range_of_numbers(encoding: FeatureEncoding, feature: Feature, columns: int) -> npt.NDArray[np.float32]:
    """Return the `FeatureEncoding.training_range` of a numeric encoding; only its increasing columns get finite bounds.

    Args:
        encoding: The encoding. Its first columns increase with the number; the others are bounded by construction.
        feature: The encoded feature. Without a training range all bounds are infinite.
        columns: How many columns increase with the number.
    """
    bounds = np.empty((2, len(encoding.names)), dtype=np.float32)
    bounds[0], bounds[1] = -np.inf, np.inf
    if feature.minimum is not None and feature.maximum is not None:
        ends = np.zeros_like(bounds)
        encoding.encode(np.array([feature.minimum, feature.maximum]), ends)
        bounds[:, :columns] = ends[:, :columns]
    return bounds


def missing_names(feature: Feature) -> tuple[str, ...]:
    """Return the name of the indicator of missing cells, if the feature accepts them."""
    return (f"{feature.name} is missing",) if feature.missing else ()


def fill_missing(column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
    """Set the rows of missing cells to 0; set the last column, the indicator, to 1 there and to 0 elsewhere."""
    absent = np.isnan(column)
    out[absent] = 0.0
    out[:, -1] = absent


_CYCLES: Mapping[str, int] = MappingProxyType({"month": 12, "weekday": 7, "hour": 24})
_ANGLES = {part: 2 * np.pi * np.arange(length, dtype=np.float64) / length for part, length in _CYCLES.items()}
_SINES_COSINES = {part: np.stack([np.sin(angle), np.cos(angle)], axis=1) for part, angle in _ANGLES.items()}


@dataclass(frozen=True)
class Calendar(Stored):
    """A date as standardised linear time, and sine and cosine of the calendar parts that vary in training.

    The parts are the month of the year, the day of the week and the hour of the day, in UTC. The day of the week counts
    only if the day of the month varies too: the weekdays of monthly or yearly dates carry no information.
    """

    feature: FromSchema
    scale: Scale
    parts: tuple[Annotated[str, one_of("month", "weekday", "hour")], ...]
    kind: Literal["calendar"] = "calendar"

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless the parts differ and are in order."""
        if list(self.parts) != [part for part in _CYCLES if part in self.parts]:
            raise MisfitError("parts", f"some of {', '.join(_CYCLES)}, in this order", self.parts)

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
        """Fit to the training rows' column ``[N]``."""
        calendar = _calendar(column[~np.isnan(column)])
        varying = {part for part, values in calendar.items() if np.unique(values).size > 1}
        if "day" not in varying:
            varying.discard("weekday")
        return cls(feature, Scale.fit(column), tuple(part for part in _CYCLES if part in varying))

    @property
    def names(self) -> tuple[str, ...]:
        """Names such as ``Sold``, ``Sold month sine``, ``Sold month cosine``, ``Sold is missing``."""
        name = self.feature.name
        parts = (f"{name} {part} {wave}" for part in self.parts for wave in ("sine", "cosine"))
        return (name, *parts, *missing_names(self.feature))

    def training_range(self) -> npt.NDArray[np.float32]:
        """Range of the linear time in training; infinite bounds for sines and cosines (`FeatureEncoding`)."""
        return training_range_of_numbers(self, self.feature, 1)

    def encode(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Write the encoding of the column ``[B]`` of days into ``out``."""
        out[:, 0] = self.scale.apply(column)
        if self.parts:
            calendar = _calendar(column)
            for position, part in enumerate(self.parts):
                out[:, 1 + 2 * position : 3 + 2 * position] = _SINES_COSINES[part][calendar[part]]
        if self.feature.missing:
            fill_missing(column, out)


def _calendar(days: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.int64]]:
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
