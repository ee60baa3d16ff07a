"""One feature of a schema: its kind, unit, training range or categories, and what to say of a value outside of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from murho.model.data.cells import format_date
from murho.model.data.column_overrides import FeatureKind
from murho.model.data.date_readings import DateReading
from murho.model.data.readings import Reading, reading_from_json
from murho.model.json_validation import expect_fields, expect_flag, expect_number, expect_text, wrong

__all__ = [
    "MOST_CATEGORIES",
    "Feature",
    "outside_message",
    "outside_rows",
    "stored_reading",
    "stored_unit",
    "with_unit",
    "written",
]

MOST_CATEGORIES = 200
"""Most categories of a feature, the most frequent ones; all others share the level of unseen categories."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One input column.

    Attributes:
        name: The column's name.
        kind: Kind of the cells.
        unit: Unit of the numbers, if one was given.
        missing: Whether cells were missing in training: the network has learned what that means.
        minimum: Smallest training value (dates: days since 1970-01-01 UTC). None for a categorical feature, and if no
            training row has a value.
        maximum: Largest training value, or None, as for the minimum. For the column of ``--time`` it lies as far ahead
            as networks were judged.
        categories: The `MOST_CATEGORIES` most frequent training categories, sorted; empty unless categorical.
        imputed: Whether missing cells are accepted although none was missing in training: an answer then averages over
            what they may have been (`model.encoding.imputation`).
        reading: How the cells are written; None for plain numbers, ISO 8601 dates, categories and truth values.
    """

    name: str
    kind: FeatureKind
    unit: str | None
    missing: bool
    minimum: float | None
    maximum: float | None
    categories: tuple[str, ...]
    imputed: bool = False
    reading: Reading | None = None

    @property
    def accepts_missing(self) -> bool:
        """Whether missing cells are accepted."""
        return self.missing or self.imputed

    def describe(self) -> dict[str, object]:
        """Return the feature as the HTTP contract shows it.

        Dates are ISO text; ``categories`` is None unless the feature is categorical. ``reading`` is there only if the
        feature has one.
        """
        categorical = self.kind is FeatureKind.CATEGORICAL
        return {
            "name": self.name,
            "kind": str(self.kind),
            "unit": self.unit,
            "min": self._shown(self.minimum),
            "max": self._shown(self.maximum),
            "categories": list(self.categories) if categorical else None,
            "missing": self.accepts_missing,
            **({"reading": self.reading.to_json()} if self.reading is not None else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """The feature as JSON data; ``imputed`` and ``reading`` only if it has them."""
        return {
            "name": self.name,
            "kind": str(self.kind),
            "unit": self.unit,
            "missing": self.missing,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "categories": list(self.categories),
            **({"imputed": True} if self.imputed else {}),
            **stored_reading(self.reading),
        }

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """The inverse of `to_json`.

        Args:
            data: The object.
            where: Its path in the file, for messages.

        Raises:
            CheckpointError: The data have another form; the message names the field.
        """
        names = ("name", "kind", "unit", "missing", "minimum", "maximum", "categories")
        fields = expect_fields(data, where, names, optional=("imputed", "reading"))
        imputed = expect_flag(fields.get("imputed", False), f"{where}.imputed")
        if fields["kind"] not in list(FeatureKind):
            raise wrong(f"{where}.kind", f"one of {', '.join(FeatureKind)}", fields["kind"])
        kind = FeatureKind(fields["kind"])
        if not isinstance(fields["missing"], bool):
            raise wrong(f"{where}.missing", "true or false", fields["missing"])
        minimum, maximum = (_bound(fields[key], f"{where}.{key}") for key in ("minimum", "maximum"))
        categories = fields["categories"]
        if not isinstance(categories, list) or not all(isinstance(category, str) for category in categories):
            raise wrong(f"{where}.categories", "a list of texts", categories)
        if categories != sorted(set(categories)):
            raise wrong(f"{where}.categories", "categories that differ, sorted", categories)
        if kind is FeatureKind.CATEGORICAL:
            if minimum is not None or maximum is not None:
                raise wrong(where, "no minimum and maximum for a categorical feature", [minimum, maximum])
        elif categories:
            raise wrong(f"{where}.categories", f"no categories for a {kind} feature", categories)
        if (minimum is None) != (maximum is None) or (
            minimum is not None and maximum is not None and minimum > maximum
        ):
            raise wrong(where, "a minimum that is not above the maximum, or neither", [minimum, maximum])
        reading = reading_from_json(fields.get("reading"), f"{where}.reading")
        if reading is not None and kind is not (
            FeatureKind.DATE if isinstance(reading, DateReading) else FeatureKind.NUMERIC
        ):
            raise wrong(f"{where}.reading", f"a reading of {kind} cells", fields["reading"])
        return cls(
            name=expect_text(fields["name"], f"{where}.name"),
            kind=kind,
            unit=stored_unit(fields["unit"], f"{where}.unit"),
            missing=fields["missing"],
            minimum=minimum,
            maximum=maximum,
            categories=tuple(categories),
            imputed=imputed,
            reading=reading,
        )

    def _shown(self, value: float | None) -> float | str | None:
        if value is not None and self.kind is FeatureKind.DATE:
            return format_date(value)
        return value


def outside_rows(feature: Feature, column: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Numbers of the rows with a value outside the training range or categories, of a canonical column ``[B]``."""
    if feature.kind is FeatureKind.CATEGORICAL:
        known = {None, *feature.categories}
        return np.flatnonzero(np.fromiter((value not in known for value in column), dtype=bool, count=len(column)))
    if feature.minimum is None or feature.maximum is None:
        return np.flatnonzero(~np.isnan(column))
    # Comparisons with NaN are false, so a missing cell is never outside.
    return np.flatnonzero((column < feature.minimum) | (column > feature.maximum))


def outside_message(feature: Feature, value: Any) -> str:
    """Say what is unusual about a value that `outside_rows` finds, for people."""
    if feature.kind is FeatureKind.CATEGORICAL:
        rare = ", or too rarely to be told apart" if len(feature.categories) == MOST_CATEGORIES else ""
        return f"category {value!r} was not seen in training{rare} ({_listing(feature.categories)})"
    if feature.minimum is None or feature.maximum is None:
        return f"{with_unit(feature, value)} can't be compared: no training row has a value"
    side = "below" if value < feature.minimum else "above"
    span = f"{written(feature, feature.minimum)} to {with_unit(feature, feature.maximum)}"
    return f"{with_unit(feature, value)} is {side} the training range, {span}"


def written(feature: Feature, value: float) -> str:
    """Format a value of a numeric or date feature for people."""
    # 12 digits distinguish a value from the range's edge that it barely exceeds, and hide binary rounding.
    return format_date(value) if feature.kind is FeatureKind.DATE else f"{value:.12g}"


def with_unit(feature: Feature, value: float) -> str:
    """Format a value as `written` does, with the feature's unit if it has one."""
    return f"{written(feature, value)} {feature.unit}" if feature.unit else written(feature, value)


def stored_reading(reading: Reading | None) -> dict[str, Any]:
    """The field ``reading`` of a feature or target as JSON data; empty without a reading."""
    return {} if reading is None else {"reading": reading.to_json()}


def stored_unit(value: object, where: str) -> str | None:
    """A unit from JSON data, or None.

    Raises:
        CheckpointError: It is no text.
    """
    return None if value is None else expect_text(value, where)


def _listing(categories: tuple[str, ...], most: int = 10) -> str:
    shown = ", ".join(repr(category) for category in categories[:most])
    return f"{shown} and {len(categories) - most} more" if len(categories) > most else shown or "none was"


def _bound(value: object, where: str) -> float | None:
    return None if value is None else expect_number(value, where)
