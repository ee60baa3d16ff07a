"""Rows as CSV."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pyarrow.csv

from murho.model.errors import TableError

_ROWS = 8192


def as_csv(table: pa.Table, *, header: bool = True) -> bytes:
    """Rows as CSV in UTF-8. Numbers are the shortest text that reads back as the same float64; missing cells are empty.

    Texts are quoted, all of them, if one needs it.

    Args:
        table: The rows.
        header: Whether the names come first.

    Raises:
        TableError: CSV has no text for the cells.
    """
    try:
        try:
            rows = _rows(table, "none")
        except pa.ArrowInvalid:
            rows = _rows(table, "needed")
    except MemoryError:  # Arrow's is an ArrowException, too
        raise
    except pa.ArrowException as error:
        raise TableError(f"the table can't be written as CSV; write .parquet instead: {error}") from error
    names = io.StringIO()
    csv.writer(names, lineterminator="\n").writerow(table.column_names)
    return (names.getvalue().encode() if header else b"") + rows


def _rows(table: pa.Table, quoting: str) -> bytes:
    parts = []
    # Rows by the thousands: growing one buffer, and joining small parts, would hold up other threads of a service.
    for start in range(0, table.num_rows, _ROWS):
        part = io.BytesIO()
        options = pa.csv.WriteOptions(include_header=False, quoting_style=quoting)
        pa.csv.write_csv(table.slice(start, _ROWS), part, options)
        parts.append(part.getvalue())
    return b"".join(parts)
