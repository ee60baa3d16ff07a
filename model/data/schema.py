"""The schema of a model: its features, its target, the columns left out, and the rows outside the training range.

Tables and requests reach the encoder as canonical columns (`Columns`). Numeric, boolean (0 or 1) and date (days since
1970-01-01 UTC, fractional) columns are float64 ``[B]`` with NaN for missing. Categorical columns are object ``[B]`` of
``str`` or ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy.typing as npt

from murho.model.data.column_overrides import FeatureKind
from murho.model.data.feature import Feature, outside_message, outside_rows, stored_reading, stored_unit
from murho.model.data.readings import Reading, reading_from_json
from murho.model.json_validation import expect_fields, expect_text, wrong

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

    name: str
    unit: str | None
    classes: tuple[str, ...] | None = None
    reading: Reading | None = None

    @property
    def task(self) -> str:
        """What predicting it is: ``regression`` of a number, or ``classification``."""
        return "regression" if self.classes is None else "classification"

    def to_json(self) -> dict[str, Any]:
        """The target as JSON data; ``classes`` and ``reading`` only if it has any."""
        classes = {} if self.classes is None else {"classes": list(self.classes)}
        return {"name": self.name, "unit": self.unit, **classes, **stored_reading(self.reading)}

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """The inverse of `to_json`.

        Args:
            data: The object.
            where: Its path in the file, for messages.

        Raises:
            CheckpointError: The data have another form; the message names the field.
        """
        fields = expect_fields(data, where, ("name", "unit"), optional=("classes", "reading"))
        classes = fields.get("classes")
        if classes is not None and (
            not isinstance(classes, list)
            or len(classes) < FEWEST_CLASSES
            or not all(isinstance(name, str) for name in classes)
            or classes != sorted(set(classes))
        ):
            raise wrong(f"{where}.classes", "at least two texts that differ, sorted", classes)
        return cls(
            expect_text(fields["name"], f"{where}.name"),
            stored_unit(fields["unit"], f"{where}.unit"),
            None if classes is None else tuple(classes),
            reading_from_json(fields.get("reading"), f"{where}.reading"),
        )


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

    features: tuple[Feature, ...]
    target: Target
    left_out: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the schema as JSON data; `from_json` reads it back."""
        return {
            "features": [feature.to_json() for feature in self.features],
            "target": self.target.to_json(),
            "left_out": dict(self.left_out),
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read what `to_json` returned.

        Raises:
            CheckpointError: The data have another form; the message names the field.
        """
        fields = expect_fields(data, "schema", ("features", "target", "left_out"))
        listed = fields["features"]
        if not isinstance(listed, list) or not listed:
            raise wrong("schema.features", "a list of at least one feature", listed)
        features = tuple(Feature.from_json(item, f"schema.features[{index}]") for index, item in enumerate(listed))
        target = Target.from_json(fields["target"], "schema.target")
        names = [feature.name for feature in features]
        if len({*names, target.name}) != len(names) + 1:
            raise wrong("schema.features", "names that differ from each other and from the target's", names)
        left_out = fields["left_out"]
        if not isinstance(left_out, dict):
            raise wrong("schema.left_out", "an object of column names and reasons", left_out)
        reasons = {
            expect_text(name, "schema.left_out"): expect_text(reason, f"schema.left_out[{name!r}]")
            for name, reason in left_out.items()
        }
        return cls(features, target, reasons)

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
