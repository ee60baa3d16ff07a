"""The schema of a model: its features, its target, the columns left out, and the rows outside the training range.

Tables and requests reach the encoder as canonical columns (`Columns`). Numeric, boolean (0 or 1) and date (days since
1970-01-01 UTC, fractional) columns are float64 ``[B]`` with NaN for missing. Categorical columns are object ``[B]`` of
``str`` or ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy.typing as npt
from pydantic import Field, TypeAdapter

from murho.model.data.column_overrides import FeatureKind
from murho.model.data.feature import Feature, Name, outside_message, outside_rows
from murho.model.data.readings import Reading  # noqa: TC001 - pydantic reads it
from murho.model.json_validation import read_strictly

__all__ = ["Columns", "Feature", "FeatureKind", "Schema", "Target", "UnfamiliarValue"]

FEWEST_CLASSES = 2

Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Feature name → canonical column ``[B]``."""


@dataclass(frozen=True, slots=True)
class Target:
    """The predicted column.

    Attributes:
        name: The column's name.
        unit: Unit of the numbers, if one was given or read.
        classes: The C classes of a classifier, sorted; None: the target is a number.
        reading: How the cells of a number are written; None for plain numbers.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    name: Name
    unit: Name | None
    classes: tuple[str, ...] | None = None
    reading: Reading | None = None

    @property
    def task(self) -> str:
        """What predicting it is: ``regression`` of a number, or ``classification``."""
        return "regression" if self.classes is None else "classification"

    def __post_init__(self) -> None:
        """Raise a ValueError if the classes can't be those of a target."""
        classes = self.classes
        if classes is not None and (len(classes) < FEWEST_CLASSES or list(classes) != sorted(set(classes))):
            raise ValueError("expected at least two classes that differ, sorted")


@dataclass(frozen=True, slots=True)
class UnfamiliarValue:
    """One value that is unlike the training rows.

    Attributes:
        row: Index of the row in the batch, from 0.
        feature: Name of the feature.
        message: What is unusual, for people.
    """

    row: int
    feature: str
    message: str


@dataclass(frozen=True, slots=True)
class Schema:
    """Features and target of a model, and the columns left out.

    Attributes:
        features: The input columns, in the order of the training table.
        target: The predicted column.
        left_out: Column of the training table that is no feature → reason.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    features: Annotated[tuple[Feature, ...], Field(min_length=1)]
    target: Target
    left_out: Mapping[Name, Name]

    def __post_init__(self) -> None:
        """Raise a ValueError if two columns have the same name."""
        names = [feature.name for feature in self.features]
        if len({*names, self.target.name}) != len(names) + 1:
            raise ValueError("expected features with names that differ from each other and from the target's")

    def to_json(self) -> dict[str, Any]:
        """Return the schema as JSON data; `from_json` reads it back."""
        data: dict[str, Any] = _schemas().dump_python(self, mode="json")
        return data

    @staticmethod
    def from_json(data: object) -> Schema:
        """Read what `to_json` returned.

        Raises:
            CheckpointError: The data have another form; the message names the field.
        """
        return read_strictly(_schemas(), data, "schema")

    def outside(self, columns: Columns, limit: int | None = None) -> list[UnfamiliarValue]:
        """List the values outside the training range and the categories unseen in training.

        Missing cells are never listed.

        Args:
            columns: The features' canonical columns, each ``[B]``.
            limit: Largest number of entries: the first ones; None for all.

        Returns:
            One entry per value, sorted by row, then by feature in schema order.
        """
        found: list[tuple[int, int]] = []
        for position, feature in enumerate(self.features):
            rows = outside_rows(feature, columns[feature.name])
            found.extend((int(row), position) for row in rows[:limit])
        found.sort()
        listed = []
        for row, position in found[:limit]:
            feature = self.features[position]
            listed.append(UnfamiliarValue(row, feature.name, outside_message(feature, columns[feature.name][row])))
        return listed


@cache
def _schemas() -> TypeAdapter[Schema]:
    return TypeAdapter(Schema)
