"""The schema of a model: its features, its target, the columns left out, and the rows outside the training range.

Tables and requests reach the encoder as canonical columns (`Columns`). Numeric, boolean (0 or 1) and date (days since
1970-01-01 UTC, fractional) columns are float64 ``[B]`` with NaN for missing. Categorical columns are object ``[B]`` of
``str`` or ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import repeat
from operator import itemgetter
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from murho.model.arrays import Array, Bools, Doubles, Ints, Places
from murho.model.errors import list_names
from murho.model.json_validation import NotNegative, Stored
from murho.model.tables.cells import MISSING_WORDS, canonical_category, format_date, without_codes
from murho.model.tables.overrides import FeatureKind as FeatureKind
from murho.model.tables.readings import DateReading, Reading

Name: TypeAlias = Annotated[str, Field(min_length=1)]
MOST_CATEGORIES = 200
"""Most categories of a feature, the most frequent ones; all others share the level of unseen categories."""
FEWEST_OF_A_CATEGORY = 5
"""A category of fewer training rows shares that level, too, unless the user has rare ones named (docs/security.md)."""
NEAR = 0.04
"""Share of the width of a training range within which a value outside still counts as near: where rows are few, many
fresh rows lie a little outside."""


@dataclass(frozen=True, slots=True)
class Feature(Stored):
    """One input column.

    Attributes:
        name: The column's name.
        kind: Kind of the cells.
        unit: Unit of the numbers, if one was given.
        missing: Whether cells were missing in training: the network has learned what that means.
        minimum: Smallest training value (dates: days since 1970-01-01 UTC). None for a categorical feature, and if no
            training row has a value.
        maximum: Largest training value, or None, as for the minimum.
        categories: The `MOST_CATEGORIES` most frequent training categories, sorted, without those of fewer than
            `FEWEST_OF_A_CATEGORY` rows unless they are to be named; empty unless categorical. In a plan, the words
            alone that the user keeps as categories.
        imputed: Whether missing cells are accepted although none was missing in training: an answer then averages over
            what they may have been (`model.encoding.imputation`).
        reading: How the cells are written; None for plain numbers, ISO 8601 dates, categories and truth values.
        ahead: How far beyond the maximum the range that answers are good for goes on: for the column of ``--time`` as
            far ahead as networks were judged.
        missing_words: Texts and numbers, as text, that mean a missing cell here, besides
            `model.tables.cells.MISSING_WORDS`.
    """

    name: Name
    kind: FeatureKind
    unit: Name | None
    missing: bool
    minimum: float | None
    maximum: float | None
    categories: tuple[str, ...]
    imputed: bool = False
    reading: Reading | None = None
    ahead: NotNegative = 0.0
    missing_words: tuple[Name, ...] = ()

    @property
    def range_end(self) -> float | None:
        """Where the range that answers are good for ends; None without a range."""
        return None if self.maximum is None else self.maximum + self.ahead

    @property
    def words(self) -> frozenset[str]:
        """All texts, and numbers as text, that mean a missing cell: a word that is a category does not."""
        return frozenset({*MISSING_WORDS, *self.missing_words}.difference(self.categories))

    def outside(self, column: Doubles, share: float = 0.0) -> Bools:
        """Whether each number or date of ``[B]`` lies outside the training range by more than a share of its width."""
        if self.minimum is None or self.maximum is None or self.range_end is None:
            return ~np.isnan(column)
        near = share * (self.maximum - self.minimum)
        with np.errstate(over="ignore"):  # comparisons with NaN are false, so a missing cell is never outside
            return np.asarray((column < self.minimum - near) | (column > self.range_end + near))

    def category(self, cell: object) -> str | None:
        """Return the canonical text of a cell of categories; None where it is missing."""
        if isinstance(cell, str) and cell in self.categories:
            return cell
        text = None if cell is None else canonical_category(cell)
        return None if text is None or self.means_missing(text) else text

    def means_missing(self, text: str) -> bool:
        """Return whether a text without blanks around it stands for a missing cell, see `words`."""
        usual = text in MISSING_WORDS or text in self.missing_words  # rarely; the categories are many
        return usual and text not in self.categories

    def without_codes(self, numbers: Doubles) -> Doubles:
        """Numbers, ``[B]``, NaN where one stands for a missing cell."""
        return without_codes(numbers, self.missing_words) if self.missing_words else numbers

    @property
    def accepts_missing(self) -> bool:
        """Whether missing cells are accepted."""
        return self.missing or self.imputed

    def describe(self) -> dict[str, object]:
        """Return the feature as the HTTP contract shows it.

        Dates are ISO text; ``categories`` is None unless the feature is categorical. ``reading`` and ``missing_words``
        are there only if the feature has them.
        """
        categorical = self.kind is FeatureKind.CATEGORICAL
        return {
            "name": self.name,
            "kind": str(self.kind),
            "unit": self.unit,
            "min": self._show(self.minimum),
            "max": self._show(self.maximum),
            "categories": list(self.categories) if categorical else None,
            "missing": self.accepts_missing,
            **({"reading": asdict(self.reading)} if self.reading is not None else {}),
            **({"missing_words": list(self.missing_words)} if self.missing_words else {}),
        }

    def __post_init__(self) -> None:
        """Raise a ValueError if the fields do not fit each other."""
        ends = (self.minimum, self.maximum)
        if list(self.categories) != sorted(set(self.categories)):
            raise ValueError("expected categories that differ, sorted")
        if (ends != (None, None)) if self.kind is FeatureKind.CATEGORICAL else self.categories:
            raise ValueError(f"expected categories or a minimum and a maximum, as a {self.kind} feature has")
        if (ends[0] is None) != (ends[1] is None) or (
            ends[0] is not None and ends[1] is not None and ends[0] > ends[1]
        ):
            raise ValueError("expected a minimum that is not above the maximum, or neither")
        reads = FeatureKind.DATE if isinstance(self.reading, DateReading) else FeatureKind.NUMERIC
        if self.reading is not None and self.kind is not reads:
            raise ValueError(f"expected a reading of {self.kind} cells")

    def _show(self, value: float | None) -> float | str | None:
        if value is not None and self.kind is FeatureKind.DATE:
            return format_date(value)
        return value


def _outside_message(feature: Feature, value: Any) -> str:
    """Say what is unusual about a value outside the training range or categories, for people."""
    if feature.kind is FeatureKind.CATEGORICAL:
        known = list_names(feature.categories) or "none was"
        return f"category {value!r:.80} was not seen in training, or too rarely to be told apart ({known})"
    if feature.minimum is None or feature.maximum is None:
        return f"{with_unit(feature, value)} can't be compared: no training row has a value"
    side = "below" if value < feature.minimum else "above"
    span = f"{format_value(feature, feature.minimum)} to {with_unit(feature, feature.maximum)}"
    judged = (
        f", and beyond {format_value(feature, feature.maximum + feature.ahead)}, as far ahead as the model was judged"
    )
    return (
        f"{with_unit(feature, value)} is {side} the training range, {span}"
        f"{judged if feature.ahead and side == 'above' else ''}"
    )


def format_value(feature: Feature, value: float) -> str:
    """Format a value of a numeric or date feature for people."""
    # 12 digits distinguish a value from the range's edge that it barely exceeds, and hide binary rounding.
    return format_date(value) if feature.kind is FeatureKind.DATE else f"{value:.12g}"


def with_unit(feature: Feature, value: float) -> str:
    """Format a value as `format_value` does, with the feature's unit if it has one."""
    return f"{format_value(feature, value)} {feature.unit}" if feature.unit else format_value(feature, value)


FEWEST_CLASSES = 2

Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Feature name → canonical column ``[B]``."""


def count_rows(columns: Columns) -> int:
    """B, the number of rows of columns ``[B]``."""
    return len(next(iter(columns.values())))


def is_missing(column: Array) -> Bools:
    """Return whether each cell of a canonical column is missing, ``[B]``."""
    if column.dtype == object:
        return np.asarray(column == None, dtype=np.bool_)  # noqa: E711 - compares each cell, not the column
    return np.asarray(np.isnan(column), dtype=np.bool_)


def select_rows(columns: Columns, rows: Ints) -> dict[str, Array]:
    """Return the given rows of all canonical columns."""
    return {name: column[rows] for name, column in columns.items()}


def json_cells(feature: Feature, column: Array) -> list[Any]:
    """Return the cells of a canonical column, ``[B]``, as JSON in a request has them; None where one is missing."""
    cells: list[Any] = column.tolist()
    if feature.kind is FeatureKind.CATEGORICAL:
        return cells
    write: Any = {FeatureKind.BOOLEAN: bool, FeatureKind.DATE: format_date}.get(feature.kind, _shortest)
    return [None if cell != cell else write(cell) for cell in cells]  # NaN alone differs from itself


def _shortest(number: float) -> float:
    return int(number) if number.is_integer() and abs(number) < 2.0**53 else number


@dataclass(frozen=True, slots=True)
class Target(Stored):
    """The predicted column.

    Attributes:
        name: The column's name.
        unit: Unit of the numbers, if one was given or read.
        classes: The C classes of a classifier, sorted; None: the target is a number.
        reading: How the cells of a number are written; None for plain numbers.
        missing_words: As of a `Feature`.
    """

    name: Name
    unit: Name | None
    classes: tuple[str, ...] | None = None
    reading: Reading | None = None
    missing_words: tuple[Name, ...] = ()

    @property
    def words(self) -> frozenset[str]:
        """All texts, and numbers as text, that mean a missing cell: a word that is a class does not."""
        return frozenset({*MISSING_WORDS, *self.missing_words}.difference(self.classes or ()))

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
class Schema(Stored):
    """Features and target of a model, and the columns left out.

    Attributes:
        features: The input columns, in the order of the training table.
        target: The predicted column.
        left_out: Column of the training table that is no feature → reason.
    """

    features: Annotated[tuple[Feature, ...], Field(min_length=1)]
    target: Target
    left_out: Mapping[Name, Name]

    def __post_init__(self) -> None:
        """Raise a ValueError if two columns have the same name."""
        names = [feature.name for feature in self.features]
        if len({*names, self.target.name}) != len(names) + 1:
            raise ValueError("expected features with names that differ from each other and from the target's")

    def outside(self, columns: Columns) -> list[UnfamiliarValue]:
        """List the values outside the training range and the categories unseen in training.

        Missing cells are never listed.

        Args:
            columns: The features' canonical columns, each ``[B]``.

        Returns:
            One entry per value, sorted by row, then by feature in schema order.
        """
        found: list[tuple[Feature, int]] = []
        for feature in self.features:
            column = columns[feature.name]
            if feature.kind is FeatureKind.CATEGORICAL:
                known = {None, *feature.categories}
                outside = np.fromiter([value not in known for value in column], dtype=np.bool_, count=len(column))
            else:
                outside = feature.outside(column)
            found += zip(repeat(feature), np.flatnonzero(outside).tolist(), strict=False)
        return [
            UnfamiliarValue(row, feature.name, _outside_message(feature, columns[feature.name][row]))
            for feature, row in sorted(found, key=itemgetter(1))
        ]

    def incomplete(self, columns: Columns) -> Places:
        """Numbers of the rows with a missing cell in a feature that was complete in training and accepts such cells.

        Args:
            columns: The features' canonical columns, each ``[B]``.
        """
        gone = np.zeros(count_rows(columns), dtype=np.bool_)
        if len(gone) == 1:  # the usual request, without NumPy's overhead of 2 microseconds a feature
            for feature in self.features:
                if feature.imputed and ((cell := columns[feature.name][0]) is None or cell != cell):
                    return np.arange(1)
            return np.arange(0)
        for feature in self.features:
            if feature.imputed:
                gone |= is_missing(columns[feature.name])
        return np.flatnonzero(gone)
