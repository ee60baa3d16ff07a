"""How one feature becomes encoded columns: what every encoding does, and the two plain ones.

Each encoding is fitted to the training rows and encodes each row by itself: a row's numbers don't depend
on the others of the batch. A missing cell (NaN) is 0 in every encoded column of the feature, the training
mean, and 1 in a column of its own if the feature accepts missing cells; otherwise NaN is written, for the
`Encoder` of `model.encoding.encoder` to refuse. The Encoder holds large numbers within limits, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np

from murho.model.encoding.scaling import Scale
from murho.model.json_validation import expect_fields

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
    """Encodes the canonical column of one feature."""

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
        """Fits to the training rows' column ``[N]``."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        ...

    def training_range(self) -> npt.NDArray[np.float32]:
        """Least and largest value of each encoded column over the training rows, ``[2, len(names)]``.

        Infinite where a column's values are all known from the start, such as sines.
        """
        ...

    def encode(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Writes the column ``[B]``, encoded, into ``out``, ``[B, len(names)]``."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Returns what was fitted, as JSON data."""
        ...

    @classmethod
    def from_json(cls, feature: Feature, data: object, where: str) -> Self:
        """Reads what `to_json` returned; a CheckpointError names the field ``where`` that doesn't fit."""
        ...


@runtime_checkable
class Scaled(Protocol):
    """An encoding of numbers or dates: it standardises them, whatever else it makes of them."""

    @property
    def scale(self) -> Scale:
        """Mean and standard deviation of the training rows."""
        ...


@dataclass(frozen=True)
class Standard:
    """A number, standardised with the mean and the standard deviation of the training rows."""

    feature: Feature
    scale: Scale

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
        """Fits to the training rows' column ``[N]``."""
        return cls(feature, Scale.fit(column))

    @property
    def names(self) -> tuple[str, ...]:
        """The feature's name and, if it accepts missing cells, the indicator's."""
        return (self.feature.name, *missing_names(self.feature))

    def training_range(self) -> npt.NDArray[np.float32]:
        """See `FeatureEncoding.training_range`."""
        return training_range_of_numbers(self, self.feature, 1)

    def encode(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Writes the column ``[B]``, encoded, into ``out``."""
        out[:, 0] = self.scale.apply(column)
        if self.feature.missing:
            fill_missing(column, out)

    def to_json(self) -> dict[str, Any]:
        """Returns the scale."""
        return {"scale": self.scale.to_json()}

    @classmethod
    def from_json(cls, feature: Feature, data: object, where: str) -> Self:
        """Reads the scale."""
        fields = expect_fields(data, where, ("scale",))
        return cls(feature, Scale.from_json(fields["scale"], f"{where}.scale"))


@dataclass(frozen=True)
class OneHot:
    """One column a training category, one for categories not among them, one for missing cells.

    Attributes:
        feature: With its categories, the most frequent ones of the training rows.
        rare: Whether training rows have others, too: then that column has learned what is true of rare categories, and
            speaks of unseen ones as of these.
    """

    feature: Feature
    rare: bool = False

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
        """Takes the feature's categories."""
        return cls(feature, rare=bool(set(column.tolist()) - {None, *feature.categories}))

    @property
    def names(self) -> tuple[str, ...]:
        """Such as ``Origin=USA``, ``Origin is unseen``, ``Origin is missing``."""
        name = self.feature.name
        levels = (f"{name}={category}" for category in self.feature.categories)
        return (*levels, f"{name} is unseen", *missing_names(self.feature))

    def training_range(self) -> npt.NDArray[np.float32]:
        """See `FeatureEncoding.training_range`; no training row is unseen, but for rare ones."""
        bounds = np.zeros((2, len(self.names)), dtype=np.float32)
        bounds[1] = 1.0
        bounds[1, len(self.feature.categories)] = float(self.rare)
        return bounds

    @cached_property
    def _levels(self) -> dict[str | None, int]:
        levels: dict[str | None, int] = {value: code for code, value in enumerate(self.feature.categories)}
        # Without a column for missing cells their level is negative, and encode writes NaN.
        levels[None] = len(levels) + 1 if self.feature.missing else -1
        return levels

    def encode(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Writes the column ``[B]`` of ``str`` or None, encoded, into ``out``."""
        unseen = len(self.feature.categories)
        codes = np.fromiter(map(self._levels.get, column, repeat(unseen)), dtype=np.intp, count=len(column))
        out[:] = 0.0
        out[np.arange(len(codes)), codes] = 1.0
        if not self.feature.missing and codes.size and codes.min() < 0:
            out[codes < 0] = np.nan

    def to_json(self) -> dict[str, Any]:
        """Returns whether there were rare ones, if there were; the schema has the categories."""
        return {"rare": True} if self.rare else {}

    @classmethod
    def from_json(cls, feature: Feature, data: object, where: str) -> Self:
        """The inverse of `to_json`."""
        rare = isinstance(data, dict) and data.get("rare") is True
        expect_fields(data, where, ("rare",) if rare else ())
        return cls(feature, rare)


def training_range_of_numbers(
    encoding: FeatureEncoding, feature: Feature, columns: int
) -> npt.NDArray[np.float32]:
    """`FeatureEncoding.training_range` where the first columns rise with the number and the others are bounded anyway.

    Args:
        encoding: The encoding.
        feature: What it encodes; without a range nothing is bounded.
        columns: How many columns rise with the number.
    """
    bounds = np.empty((2, len(encoding.names)), dtype=np.float32)
    bounds[0], bounds[1] = -np.inf, np.inf
    if feature.minimum is not None and feature.maximum is not None:
        ends = np.zeros_like(bounds)
        encoding.encode(np.array([feature.minimum, feature.maximum]), ends)
        bounds[:, :columns] = ends[:, :columns]
    return bounds


def missing_names(feature: Feature) -> tuple[str, ...]:
    """Returns the name of the column for missing cells, if the feature accepts them."""
    return (f"{feature.name} is missing",) if feature.missing else ()


def fill_missing(column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
    """Sets the rows of missing cells to 0, and the last column to 1 in them and 0 elsewhere."""
    absent = np.isnan(column)
    out[absent] = 0.0
    out[:, -1] = absent
