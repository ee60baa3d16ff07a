"""The contract of an encoding of one feature, and the plain ones: standardised numbers, categories, dates, nothing.

An encoding is fitted to the training rows and encodes each row independently of the others in its batch. If the feature
accepts missing cells, a missing cell (NaN) is 0, the training mean, in every encoded column of the feature, and 1 in a
further indicator column, which the `model.encoding.encoder.Encoder` writes. The Encoder also clips large numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from pydantic import PlainSerializer

from murho.model.json_validation import Positive, Stored, Unlimited, one_of
from murho.model.tables.schema import Feature

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

__all__ = [
    "FURTHEST",
    "LARGEST",
    "Calendar",
    "FeatureEncoding",
    "FromSchema",
    "OneHot",
    "Scale",
    "Scaled",
    "Standard",
    "Unread",
]


LARGEST = 1e6
"""Encoded numbers are clipped at ±LARGEST: larger ones could overflow the float32 arithmetic of a network."""
FURTHEST = 5.0
"""Standardised numbers are clipped at ± this many standard deviations, if a training row lies further out.

The distance beyond is an input of its own (`model.encoding.ranges`). Without the limit, one cell with a
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
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
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

    def training_range(self) -> npt.NDArray[np.float32]:
        """Smallest and largest value of each encoded column over the training rows, ``[2, len(names)]``.

        The bounds are infinite for columns that are bounded by construction, such as sines, and without a range.
        """
        bounds = np.full((2, len(self.names)), np.inf, dtype=np.float32)
        bounds[0] = -np.inf
        if self.increasing and self.feature.minimum is not None:
            ends = np.zeros_like(bounds)
            self.write(np.array([self.feature.minimum, self.feature.reach], dtype=np.float64), ends)
            bounds[:, : self.increasing] = ends[:, : self.increasing]
        return bounds

    def write(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
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


@dataclass(frozen=True)
class Standard(Scaled):
    """A number standardised by the mean and standard deviation of the training rows.

    Attributes:
        bounded: Whether the number is bounded by what it is, such as a pixel: it then has no input for the distance
            beyond its training range (`model.encoding.ranges`).
    """

    bounded: bool = False
    kind: Literal["standard"] = "standard"

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
        """Fit to the training rows' column ``[N]``."""
        return cls(feature, Scale.fit(column))

    @property
    def cell_names(self) -> tuple[str, ...]:
        """The feature's name."""
        return (self.feature.name,)

    def write(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Write the standardised numbers."""
        out[:, 0] = self.scale.apply(column)


@dataclass(frozen=True)
class Unread(FeatureEncoding):
    """No encoded column: answers do not depend on the feature's value.

    The feature stays one of the schema. A row that is unlike the training rows in it is still found, because the
    distance of rows (`model.encoding.unlike`) is that of all features.
    """

    feature: FromSchema
    kind: Literal["unread"] = "unread"
    names: ClassVar[tuple[str, ...]] = ()
    cell_names: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:  # noqa: ARG003
        """There is nothing to fit."""
        return cls(feature)

    def write(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
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
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
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

    def training_range(self) -> npt.NDArray[np.float32]:
        """0 and 1 for every column, and 0 for the unseen column unless categories are rare, ``[2, len(names)]``."""
        bounds = np.zeros((2, len(self.names)), dtype=np.float32)
        bounds[1] = 1.0
        bounds[1, self.others] = float(self.rare)
        return bounds

    def write(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
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
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
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

    def write(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Write standardised days, and sines and cosines."""
        out[:, 0] = self.scale.apply(column)
        if self.parts:
            calendar = _calendar(column)
            for position, part in enumerate(self.parts):
                out[:, 1 + 2 * position : 3 + 2 * position] = _SINES_COSINES[part][calendar[part]]


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
