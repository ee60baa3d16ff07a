"""The data report: each column of a table with kind, range and an example, or why it is left out, and leak suspects."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from murho.model.errors import format_count, printable
from murho.model.tables.cells import format_date
from murho.model.tables.formats import notes_of
from murho.model.tables.inference import Inference, infer_column, infer_feature
from murho.model.tables.overrides import ColumnOverride
from murho.model.tables.readings import ReadingHints
from murho.model.tables.schema import FeatureKind
from murho.model.tables.schema_inference import IGNORED, ColumnPlan, column_unit


@dataclass(frozen=True, slots=True)
class Suspect:
    """A feature that may leak the target.

    Attributes:
        column: The feature.
        reason: Why it is suspected, as the end of a sentence that begins with its name.
    """

    column: str
    reason: str


def leak_sentences(suspects: Sequence[Suspect]) -> Iterator[str]:
    """Return the suspicions with what to do, one for all columns of the same reason."""
    for reason in dict.fromkeys(suspect.reason for suspect in suspects):
        names = [suspect.column for suspect in suspects if suspect.reason == reason]
        several, options = len(names) > 1, " ".join(f"--ignore {shlex.quote(name)}" for name in names)
        subject, known = (": each", "they are") if several else ("", "it is")
        yield (
            f"{', '.join(map(repr, names))}{subject} {reason}: if {known} not known when the target is asked for, "
            f"give {options}"
        )


class ReportedColumn(NamedTuple):
    """A column of the table.

    Attributes:
        name: Its name.
        role: ``target``, ``feature``, ``left out``, or ``weight``.
        unit: Unit of its numbers, if one is known.
        found: What its cells tell.
    """

    name: str
    role: str
    unit: str | None
    found: Inference

    @property
    def remarks(self) -> list[str]:
        """What to say of it, a line each."""
        reading = self.found.reading
        return [*([f"read as {reading.describe()}"] if reading else []), *self.found.remarks]

    @property
    def ends(self) -> tuple[float | str, ...]:
        """Smallest and largest value, dates as text; none of categories."""
        ends = self.found.range or ()
        return tuple(map(format_date, ends)) if self.found.kind is FeatureKind.DATE else ends

    def to_json(self) -> dict[str, Any]:
        """Return the column as JSON data; of one that is left out only why, its missing cells, and an example."""
        facts = {"name": self.name, "role": self.role, "unit": self.unit, **asdict(self.found), "range": self.ends}
        brief = ("name", "role", "missing", "example", "left_out")
        return {key: facts[key] for key in brief} if self.role == "left out" else facts


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
    columns: list[ReportedColumn]
    leak_suspects: list[Suspect]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return asdict(self) | {"columns": [column.to_json() for column in self.columns]}


def describe_table(
    table: pa.Table, plan: ColumnPlan, suspects: list[Suspect], *, weight: str | None = None
) -> DataReport:
    """Describe the table of a training.

    Args:
        table: All columns, N rows.
        plan: What was inferred of them.
        suspects: Features that may leak the target.
        weight: The column of weights, if there is one.
    """
    schema, found = plan.schema, dict(plan.columns)
    used = {each.name: ("feature", each.unit) for each in schema.features}
    used[schema.target.name] = "target", schema.target.unit
    if weight is not None:
        used[weight] = "weight", None
        found[weight] = infer_column(table.column(weight), weight, FeatureKind.NUMERIC)
    columns = [ReportedColumn(name, *used.get(name, ("left out", None)), found[name]) for name in table.column_names]
    return DataReport(table.num_rows, columns, suspects, notes_of(table))


def describe_columns(
    table: pa.Table, hints: ReadingHints, ignored: Collection[str], overrides: Mapping[str, ColumnOverride]
) -> DataReport:
    """Describe a table of which no column is the target yet. What can't be read is left out, with the reason.

    Args:
        table: All columns, N rows.
        hints: What decides where columns leave open how they are to be read.
        ignored: Columns that are left out.
        overrides: Column → kind and unit given by the user.
    """
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        given = overrides.get(name, ColumnOverride())
        found, _ = infer_feature(column, name, given.kind, hints, IGNORED if name in ignored else None)
        unit = column_unit(table, name, given, found)
        columns.append(ReportedColumn(name, "left out" if found.left_out else "feature", unit, found))
    return DataReport(table.num_rows, columns, [], notes_of(table))


MOST_COLUMNS = 40
"""Of more columns, others than the target and those with something odd are counted only."""
_WIDEST_NAME, _WIDEST_RANGE = 28, 34


def report_lines(report: DataReport, source: str, width: int | None = None) -> list[str]:
    """Return the report in lines: a table of the columns, what was left out and why, and leak suspects.

    Args:
        report: The report.
        source: Name of the file.
        width: Columns of the terminal: sentences are wrapped, and rows of the table cut; None for lines of any length.
    """
    out = [column for column in report.columns if column.role == "left out"]
    used = [column for column in report.columns if column.role != "left out"]
    shown = used
    if len(used) > MOST_COLUMNS:
        shown = sorted(used, key=lambda column: column.role == "feature" and not column.remarks)[:MOST_COLUMNS]
    rows = [["column", "kind", "missing", "range or categories", "example"]]
    rows += [list(map(printable, _row(column))) for column in shown]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = [f"{source}: {format_count(report.rows, 'row')}, {format_count(len(report.columns), 'column')}"]
    lines += [f"  note: {note}" for note in report.notes]
    for cells, remarks in zip(rows, [[], *(column.remarks for column in shown)], strict=True):
        row = "".join(f"  {cell.ljust(size)}" for cell, size in zip(cells, widths, strict=True)).rstrip()
        lines += [_shorten(row, width or len(row)), *(f"      {text}" for text in remarks)]
    if len(used) > len(shown):
        lines.append(f"  and {len(used) - len(shown)} more columns; --json lists all")
    lines += [f"  left out {column.name!r}: {column.found.left_out}" for column in out[:MOST_COLUMNS]]
    if len(out) > MOST_COLUMNS:
        lines.append(f"  left out {len(out) - MOST_COLUMNS} more columns; --json lists all")
    lines += [f"  leak suspect: {sentence}" for sentence in leak_sentences(report.leak_suspects)]
    if width is None:
        return lines
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="    ")]


def _row(column: ReportedColumn) -> tuple[str, ...]:
    found = column.found
    span = " to ".join(map(_write, column.ends)) + (f" {column.unit}" if column.unit and column.ends else "")
    if found.kind is FeatureKind.CATEGORICAL:
        span = _shorten(f"{found.different}: {', '.join(found.categories)}", _WIDEST_RANGE)
    kind = found.kind + (f" ({column.role})" if column.role != "feature" else "")
    return (
        _shorten_middle(column.name, _WIDEST_NAME),
        kind,
        f"{found.missing:,}",
        span,
        found.example or "",
    )


def _write(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value + 0.0:.6g}"  # no "-0"


def _shorten_middle(text: str, width: int) -> str:
    """Return a name without its middle: long names often differ at their ends alone."""
    return text if len(text) <= width else f"{text[: width // 2]}…{text[width // 2 + 1 - width :]}"


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
