"""The data report as lines for a terminal."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    out = [column for column in report.columns if column.role == "left out"]
    used = [column for column in report.columns if column.role != "left out"]
    plain = [column for column in used if column.role == "feature" and not (column.oddities or column.read_as)]
    hidden = plain[max(0, MOST_COLUMNS - (len(used) - len(plain))) :] if len(used) > MOST_COLUMNS else []
    lines = [f"{source}: {report.rows:,} rows, {len(report.columns)} columns"]
    lines += [f"  note: {note}" for note in report.notes]
    shown = [column for column in used if column not in hidden]
    rows = [("column", "kind", "missing", "range or categories", "example"), *map(_row, shown)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for number, (name, kind, missing, *others) in enumerate(rows):
        span, example = (cell.ljust(size) for cell, size in zip(others, widths[3:], strict=True))
        cells = f"  {name.ljust(widths[0])}  {kind.ljust(widths[1])}  {missing.rjust(widths[2])}  {span}  {example}"
        lines.append(_cut(cells.rstrip(), width or len(cells)))
        if number:
            column = shown[number - 1]
            recognised = [f"read as {column.read_as}"] if column.read_as else []
            lines += [f"      {text}" for text in (*recognised, *column.oddities)]
    if hidden:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(column.kind for column in hidden).most_common())
        lines.append(f"  and {len(hidden)} more columns ({kinds}); --json lists all")
    lines += [f"  left out {column.name!r}: {column.left_out}" for column in out[:MOST_COLUMNS]]
    if len(out) > MOST_COLUMNS:
        lines.append(f"  left out {len(out) - MOST_COLUMNS} more columns; --json lists all")
    lines += [f"  leak suspect: {suspect.message}" for suspect in report.leak_suspects]
    return [part for line in lines for part in _wrapped(line, width)]


def _wrapped(line: str, width: int | None) -> list[str]:
    if width is None or len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line.strip(), width, initial_indent=indent, subsequent_indent=indent + "  ")


def _row(column: ColumnFacts) -> tuple[str, ...]:
    if column.categories is not None:
        span = f"{column.different}: {', '.join(column.categories)}"
    else:
        span = "" if column.min is None else f"{_written(column.min)} to {_written(column.max)} {column.unit or ''}"
    kind = (column.kind or "") + (f" ({column.role})" if column.role != "feature" else "")
    name, span = _cut(column.name, _WIDEST_NAME), _cut(span.rstrip(), _WIDEST_RANGE)
    return name, kind, f"{column.missing:,}", span, column.example or ""


def _written(value: float | str | None) -> str:
    if not isinstance(value, float):
        return str(value)
    size = abs(value)
    if size < 10_000 or size >= 1e15:
        return f"{value:.6g}"
    return f"{value:,.0f}" if size >= 100_000 or value.is_integer() else f"{value:,.6g}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
