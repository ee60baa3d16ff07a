"""Encodings of one feature: the protocol of all encodings, standardised numbers and one-hot categories.

An encoding is fitted to the training rows and encodes each row independently of the others in its batch. If the feature
accepts missing cells, a missing cell (NaN) is 0, the training mean, in every encoded column of the feature, and 1 in a
further indicator column. If not, the encoding writes NaN, and `model.encoding.encoder.Encoder` refuses the row. The
Encoder also clips large numbers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np

from murho.model.encoding.scaling import Scale
from murho.model.json_validation import expect_fields, expect_flag, expect_list, wrong

if TYPE_CHECKING:
    import numpy.typing as npt

    from murho.model.data.schema import Feature

__all__ = [
    "FeatureEncoding",
    "OneHot",
    "Scaled",
    "Standard",
    "fill_missing",
    "missing_names",
    "training_range_of_numbers",
]


class FeatureEncoding(Protocol):
    """An encoding of one feature's canonical column."""

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
        """Fit to the training rows' column ``[N]``."""
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

    def to_json(self) -> dict[str, Any]:
        """Return the fitted state as JSON data."""
        ...

    @classmethod
    def from_json(cls, feature: Feature, data: object, where: str) -> Self:
        """Read the data of `to_json`; a CheckpointError names the field below ``where`` that doesn't fit."""
        ...


@runtime_checkable
class Scaled(Protocol):
    """An encoding that standardises numbers or dates; it may add further columns."""

    @property
    def scale(self) -> Scale:
        """Mean, standard deviation and clipping limit, from the training rows."""
        ...


@dataclass(frozen=True)
class Standard:
    """A number standardised by the mean and standard deviation of the training rows.

    Attributes:
        feature: The feature.
        scale: Mean, standard deviation and clipping limit.
        bounded: Whether the number is bounded by what it is, such as a pixel: it then has no input for the distance
            beyond its training range (`model.encoding.range_distance`).
    """

    feature: Feature
    scale: Scale
    bounded: bool = False

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

    def to_json(self) -> dict[str, Any]:
        """Return the scale, and ``bounded`` if it is true."""
        return {"scale": self.scale.to_json()} | ({"bounded": True} if self.bounded else {})

    @classmethod
    def from_json(cls, feature: Feature, data: object, where: str) -> Self:
        """Read the data of `to_json`."""
        fields = expect_fields(data, where, ("scale",), optional=("bounded",))
        bounded = expect_flag(fields.get("bounded", False), f"{where}.bounded")
        return cls(feature, Scale.from_json(fields["scale"], f"{where}.scale"), bounded)


FEWEST_ROWS_OF_A_LEVEL = 3
"""Categories with fewer training rows share one column: one or two rows teach a weight little. They share it if there
are several, and if some category has more rows."""


@dataclass(frozen=True)
class OneHot:
    """One column for each training category, one for all other categories, and one for missing cells.

    Attributes:
        feature: The feature with its categories, the most frequent ones of the training rows.
        rare: Whether training rows also have other, rarer categories. The column for other categories has then learned
            from these, and treats unseen categories like rare ones.
        pooled: Categories of the feature that have no column of their own, but share the one for other categories.
    """

    feature: Feature
    rare: bool = False
    pooled: tuple[str, ...] = ()

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

    def to_json(self) -> dict[str, Any]:
        """Return ``rare`` if it is true, and the pooled categories if there are any; the schema holds the others."""
        return ({"rare": True} if self.rare else {}) | ({"pooled": list(self.pooled)} if self.pooled else {})

    @classmethod
    def from_json(cls, feature: Feature, data: object, where: str) -> Self:
        """Read the data of `to_json`."""
        rare = isinstance(data, dict) and data.get("rare") is True
        given = tuple(name for name in ("rare", "pooled") if rare and isinstance(data, dict) and name in data)
        pooled = expect_list(expect_fields(data, where, given).get("pooled", []), f"{where}.pooled")
        if len(set(map(str, pooled))) < len(pooled) or not set(map(str, pooled)) <= set(feature.categories):
            raise wrong(f"{where}.pooled", "categories of the feature that differ", pooled)
        return cls(feature, rare, tuple(map(str, pooled)))


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
