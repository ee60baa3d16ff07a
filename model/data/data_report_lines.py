"""The data report as lines for a terminal."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.data.data_report import ColumnFacts, DataReport

__all__ = ["report_lines"]

MOST_COLUMNS = 40
"""Of more columns, those without anything odd are counted only."""
_WIDEST_NAME, _WIDEST_RANGE = 28, 34


def report_lines(report: DataReport, source: str, width: int | None = None) -> list[str]:
    """The report in lines: a table of the columns, what was left out and why, and leak suspects.

    Args:
        report: The report.
        source: Name of the file.
        width: Columns of the terminal: sentences are wrapped, and rows of the table cut; None for lines of any length.
    """
    used = [column for column in report.columns if column.role != "left out"]
    out = [column for column in report.columns if column.role == "left out"]
    lines = [f"{source}: {report.rows:,} rows, {len(report.columns)} columns"]
    lines += [f"  note: {note}" for note in report.notes]
    closing: list[str] = []
    if len(used) > MOST_COLUMNS:
        plain = [column for column in used if not (column.oddities or column.read_as or column.role != "feature")]
        hidden = plain[max(0, MOST_COLUMNS - (len(used) - len(plain))) :]
    else:
        hidden = []
    rows = _table([column for column in used if column not in hidden])
    if hidden:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(column.kind for column in hidden).most_common())
        closing.append(f"  and {len(hidden)} more columns ({kinds}); --json lists all")
    closing += [f"  left out {column.name!r}: {column.reason}" for column in out[:MOST_COLUMNS]]
    if len(out) > MOST_COLUMNS:
        closing.append(f"  left out {len(out) - MOST_COLUMNS} more columns; --json lists all")
    closing += [f"  leak suspect: {suspect.message}" for suspect in report.suspects]
    fitted = [_wrapped(line, width) for line in lines]
    fitted += [[_cut(text, width or len(text))] if row else _wrapped(text, width) for text, row in rows]
    fitted += [_wrapped(line, width) for line in closing]
    return [line for part in fitted for line in part]


def _wrapped(line: str, width: int | None) -> list[str]:
    if width is None:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line.strip(), width, initial_indent=indent, subsequent_indent=indent + "  ")


def _table(columns: Sequence[ColumnFacts]) -> list[tuple[str, bool]]:
    """The rows of the table, and between them what is to be said of a column; each with whether it is a row."""
    rows = [("column", "kind", "missing", "range or categories", "example")]
    rows += [
        (
            _cut(column.name, _WIDEST_NAME),
            (column.kind or "") + (f" ({column.role})" if column.role != "feature" else ""),
            f"{column.missing:,}",
            _cut(_range(column), _WIDEST_RANGE),
            column.example or "",
        )
        for column in columns
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(4)]
    lines = []
    for number, row in enumerate(rows):
        name, kind, missing, span, example = row
        cells = (name.ljust(widths[0]), kind.ljust(widths[1]), missing.rjust(widths[2]), span.ljust(widths[3]), example)
        lines.append((f"  {'  '.join(cells)}".rstrip(), True))
        if number:
            column = columns[number - 1]
            recognised = [f"read as {column.read_as}"] if column.read_as else []
            lines += [(f"      {text}", False) for text in (*recognised, *column.oddities)]
    return lines


def _range(column: ColumnFacts) -> str:
    if column.different is not None:
        listed = ", ".join(column.categories)
        return f"{column.different}: {listed}"
    if column.minimum is None:
        return ""
    unit = f" {column.unit}" if column.unit else ""
    return f"{_written(column.minimum)} to {_written(column.maximum)}{unit}"


def _written(value: float | str | None) -> str:
    if not isinstance(value, float):
        return str(value)
    size = abs(value)
    if size < 10_000 or size >= 1e15:
        return f"{value:.6g}"
    return f"{value:,.0f}" if size >= 100_000 or value.is_integer() else f"{value:,.6g}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
