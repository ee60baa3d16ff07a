"""The data report of a training: each column of the table with kind, range, an example and what is odd about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from murho.model.data.cells import format_date
from murho.model.data.columns import canonical_cells, is_missing, plain
from murho.model.data.leaks import Suspect, leak_suspects, rows_to_look_at
from murho.model.data.oddities import oddities
from murho.model.data.schema import FeatureKind
from murho.model.data.table_notes import notes_of
from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from murho.model.data.readings import Reading
    from murho.model.data.schema_inference import ColumnPlan

__all__ = ["ColumnFacts", "DataReport", "describe_table"]

ORDERED_CLASSES = 2
_CATEGORIES = 5
_LONGEST_EXAMPLE = 40


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column of the table.

    Attributes:
        name: Its name.
        role: ``target``, ``feature``, ``left out``, or ``weight``.
        kind: Its kind; None if it is left out.
        unit: Unit of its numbers, if one is known.
        read_as: How its cells were recognised; None for plain numbers, ISO 8601 dates, truth values and categories.
        missing: Number of missing cells.
        minimum: Smallest value: a number, or a date as text; None for categories.
        maximum: Largest value, as for the smallest.
        categories: The most frequent categories; empty unless categorical.
        different: Number of different categories; None unless categorical.
        example: The first cell that is there, as it is written; None if there is none.
        oddities: What is odd, and what was decided about the reading without proof.
        reason: Why it is left out; None if it is not.
    """

    name: str
    role: str
    kind: str | None
    unit: str | None
    read_as: str | None
    missing: int
    minimum: float | str | None
    maximum: float | str | None
    categories: tuple[str, ...]
    different: int | None
    example: str | None
    oddities: tuple[str, ...]
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the facts as JSON data."""
        return {
            "name": self.name,
            "role": self.role,
            "kind": self.kind,
            "unit": self.unit,
            "read_as": self.read_as,
            "missing": self.missing,
            "min": self.minimum,
            "max": self.maximum,
            "categories": list(self.categories) if self.different is not None else None,
            "different": self.different,
            "example": self.example,
            "oddities": list(self.oddities),
            "left_out": self.reason,
        }


@dataclass(frozen=True, slots=True)
class DataReport:
    """What a training says about its table before it begins.

    Attributes:
        rows: Number of rows, N.
        columns: All columns in the order of the table.
        suspects: Features that may leak the target.
        notes: What the reader of the file has to tell.
    """

    rows: int
    columns: tuple[ColumnFacts, ...]
    suspects: tuple[Suspect, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {
            "rows": self.rows,
            "columns": [column.to_json() for column in self.columns],
            "leak_suspects": [
                {"column": suspect.column, "reason": suspect.reason, "share": suspect.share}
                for suspect in self.suspects
            ],
            "notes": list(self.notes),
        }


def describe_table(
    table: pa.Table, plan: ColumnPlan, targets: npt.NDArray[np.float64], *, weight: str | None = None
) -> DataReport:
    """Describe the table of a training, a column at a time.

    Args:
        table: All columns, N rows.
        plan: What was inferred of them.
        targets: ``[N]``, NaN where missing.
        weight: The column of weights, if there is one.
    """
    # The numbers of more than two classes have no order, so no column can copy them.
    ordered = plan.target.classes is None or len(plan.target.classes) == ORDERED_CLASSES
    looked_at = rows_to_look_at(targets)
    looks: dict[str, npt.NDArray[Any]] = {}
    described = []
    for name in table.column_names:
        cells, values = _cells(table, name), None
        if name == plan.target.name:
            kind, values = FeatureKind.NUMERIC, targets
            if plan.target.classes is not None:
                kind, values = FeatureKind.CATEGORICAL, canonical_cells(cells, FeatureKind.CATEGORICAL, name)
            facts = _facts("target", cells, name, kind, values, plan.target.unit, plan.target.reading, plan.notes)
        elif name in plan.kinds:
            kind, reading, unit = plan.kinds[name], plan.readings.get(name), plan.units[name]
            values = canonical_cells(cells, kind, name, reading)
            looks[name] = values[looked_at]
            facts = _facts("feature", cells, name, kind, values, unit, reading, plan.notes)
        elif name == weight:
            values = canonical_cells(cells, FeatureKind.NUMERIC, name)
            facts = _facts("weight", cells, name, FeatureKind.NUMERIC, values, None, None, plan.notes)
        else:
            facts = _left_out(cells, name, plan.left_out.get(name, ""))
        described.append(facts)
        del cells, values  # they would stay while the next column is read
    looks = {name: looks[name] for name in plan.kinds}
    suspects = leak_suspects(looks, plan.kinds, plan.target.name, targets[looked_at]) if ordered else []
    return DataReport(table.num_rows, tuple(described), tuple(suspects), tuple(notes_of(table)))


def _facts(
    role: str,
    cells: pa.ChunkedArray,
    name: str,
    kind: FeatureKind,
    column: npt.NDArray[Any],
    unit: str | None,
    reading: Reading | None,
    notes: Mapping[str, str],
) -> ColumnFacts:
    absent = is_missing(column)
    present = column[~absent]
    minimum: float | str | None = None
    maximum: float | str | None = None
    counts: Counter[str] = Counter()
    if kind is FeatureKind.CATEGORICAL:
        counts = Counter(present.tolist())
    elif len(present):
        minimum, maximum = float(present.min()), float(present.max())
        if kind is FeatureKind.DATE:
            minimum, maximum = format_date(minimum), format_date(maximum)
    odd = oddities(name, kind, column, cells) if role == "feature" else []
    return ColumnFacts(
        name=name,
        role=role,
        kind=str(kind),
        unit=unit,
        read_as=None if reading is None else reading.describe(),
        missing=int(absent.sum()),
        minimum=minimum,
        maximum=maximum,
        categories=tuple(category for category, _ in counts.most_common(_CATEGORIES)),
        different=len(counts) if kind is FeatureKind.CATEGORICAL else None,
        example=_example(cells),
        oddities=tuple(filter(None, (notes.get(name), *odd))),
    )


def _cells(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column from `plain`; as it is stored where that refuses it, as the inference did too, and left it out."""
    try:
        return plain(table.column(name), name)
    except TableError:
        return table.column(name)


def _left_out(cells: pa.ChunkedArray, name: str, reason: str) -> ColumnFacts:
    missing = int(cells.null_count)
    return ColumnFacts(
        *(name, "left out", None, None, None, missing, None, None, (), None, _example(cells), ()),
        reason or "it is not used",
    )


def _example(cells: pa.ChunkedArray) -> str | None:
    """The first cell that is there, as text, cut to `_LONGEST_EXAMPLE` characters."""
    if cells.null_count == len(cells):
        return None
    first = next(chunk for chunk in cells.chunks if chunk.null_count < len(chunk))
    cell = pc.drop_null(first)[0].as_py()
    text = f"{cell:.12g}" if isinstance(cell, float) else str(cell)
    return text if len(text) <= _LONGEST_EXAMPLE else f"{text[: _LONGEST_EXAMPLE - 1]}…"
