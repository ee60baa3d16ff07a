"""The data report of a training: each column of the table with kind, range and an example, and leak suspects."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from murho.model.data.cells import format_date
from murho.model.data.columns import canonical_cells, is_missing, plain
from murho.model.data.leaks import Suspect, leak_suspects, rows_to_look_at
from murho.model.data.schema import FeatureKind
from murho.model.data.table_notes import notes_of
from murho.model.errors import TableError

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from murho.model.data.schema_inference import ColumnPlan

__all__ = ["ColumnFacts", "DataReport", "describe_table"]

ORDERED_CLASSES = 2
_CATEGORIES = 5
_LONGEST_EXAMPLE = 40
_SENTINELS = [sign * (10.0**nines - 1.0) for sign in (1.0, -1.0) for nines in (2, 3, 4, 5, 6)] + [-1.0, -9.0]


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column of the table.

    Attributes:
        name: Its name.
        role: ``target``, ``feature``, ``left out``, or ``weight``.
        missing: Number of missing cells.
        example: The first cell that is there, as it is written; None if there is none.
        kind: Its kind; None if it is left out.
        unit: Unit of its numbers, if one is known.
        read_as: How its cells were recognised; None for plain numbers, ISO 8601 dates, truth values and categories.
        min: Smallest value: a number, or a date as text; None for categories.
        max: Largest value, as for the smallest.
        categories: The most frequent categories; None unless categorical.
        different: Number of different categories; None unless categorical.
        oddities: What was decided about the reading without proof, and values that may stand for missing ones.
        left_out: Why it is left out; None if it is not.
    """

    name: str
    role: str
    missing: int
    example: str | None
    kind: str | None = None
    unit: str | None = None
    read_as: str | None = None
    min: float | str | None = None
    max: float | str | None = None
    categories: list[str] | None = None
    different: int | None = None
    oddities: list[str] = field(default_factory=list)
    left_out: str | None = None


@dataclass(frozen=True, slots=True)
class DataReport:
    """What a training says about its table before it begins.

    Attributes:
        rows: Number of rows, N.
        columns: All columns in the order of the table.
        leak_suspects: Features that may leak the target.
        notes: What the reader of the file has to tell.
    """

    rows: int
    columns: list[ColumnFacts]
    leak_suspects: list[Suspect]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return asdict(self)


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
    looked_at = rows_to_look_at(targets)
    looks: dict[str, npt.NDArray[Any]] = {}
    described = []
    for name in table.column_names:
        facts, values = _described(table.column(name), name, plan, weight)
        described.append(facts)
        if name in plan.kinds:
            looks[name] = values[looked_at]
        del values  # it would stay while the next column is read
    # The numbers of more than two classes have no order, so no column can copy them.
    ordered = plan.target.classes is None or len(plan.target.classes) == ORDERED_CLASSES
    suspects = leak_suspects(looks, plan.kinds, plan.target.name, targets[looked_at]) if ordered else []
    return DataReport(table.num_rows, described, suspects, notes_of(table))


def _described(
    column: pa.ChunkedArray, name: str, plan: ColumnPlan, weight: str | None
) -> tuple[ColumnFacts, npt.NDArray[Any]]:
    """The facts of a column, and its canonical column; empty for one that is left out."""
    kind, reading, unit = plan.kinds.get(name), plan.readings.get(name), plan.units.get(name)
    role = "feature" if kind else "left out"
    if name == plan.target.name:
        role, reading, unit = "target", plan.target.reading, plan.target.unit
        kind = FeatureKind.NUMERIC if plan.target.classes is None else FeatureKind.CATEGORICAL
    elif name == weight:
        role, kind = "weight", FeatureKind.NUMERIC
    try:
        cells = plain(column, name)
    except TableError:  # the inference left it out
        cells = column
    if kind is None:
        reason = plan.left_out.get(name) or "it is not used"
        return ColumnFacts(name, role, cells.null_count, _example(cells), left_out=reason), np.empty(0)
    values = canonical_cells(cells, kind, name, reading)
    absent = is_missing(values)
    facts: dict[str, Any] = {
        "kind": str(kind),
        "unit": unit,
        "read_as": None if reading is None else reading.describe(),
    }
    odd = [plan.notes.get(name)]
    if kind is FeatureKind.CATEGORICAL:
        counts = Counter(values[~absent].tolist())
        facts |= {"categories": [most for most, _ in counts.most_common(_CATEGORIES)], "different": len(counts)}
    elif not absent.all():
        ends = [float(end) for end in (np.nanmin(values), np.nanmax(values))]
        facts["min"], facts["max"] = map(format_date, ends) if kind is FeatureKind.DATE else ends
        odd += [_sentinel(values[~absent], end) for end in ends] if role == "feature" else []
    said = [text for text in odd if text]
    return ColumnFacts(name, role, int(absent.sum()), _example(cells), oddities=said, **facts), values


def _sentinel(present: npt.NDArray[np.float64], end: float) -> str | None:
    """What to say of the smallest or largest number if it looks like a code for missing values; None if it doesn't."""
    rest = present[present != end]
    count = len(present) - len(rest)
    if end not in _SENTINELS or count < 2 or len(rest) < 3:
        return None
    gap = float(np.abs(rest - end).min())
    if gap > np.ptp(rest) or (end <= -9.0 and rest.min() >= 0.0):
        return f"{end:.12g} in {count} cells may stand for missing values: if so, leave these cells empty"
    return None


def _example(cells: pa.ChunkedArray) -> str | None:
    """The first cell that is there, as text, cut to `_LONGEST_EXAMPLE` characters."""
    if cells.null_count == len(cells):
        return None
    first = next(chunk for chunk in cells.chunks if chunk.null_count < len(chunk))
    cell = pc.drop_null(first)[0].as_py()
    text = f"{cell:.12g}" if isinstance(cell, float) else str(cell)
    return text if len(text) <= _LONGEST_EXAMPLE else f"{text[: _LONGEST_EXAMPLE - 1]}…"
