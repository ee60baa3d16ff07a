"""Excel workbooks (``.xlsx``) as tables, with openpyxl, which the extra ``excel`` installs."""

from __future__ import annotations

import io
from datetime import date, datetime, time, timedelta
from typing import Any

import pyarrow as pa

from murho.model.data.json_files import column_of_cells
from murho.model.data.table_notes import with_notes
from murho.model.errors import TableError

__all__ = ["read_excel"]

HOW_TO_INSTALL = "install it with pip install '.[excel]' in a clone of Murho's repository, or save the sheet as CSV"
_ERRORS = frozenset({"#N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"})


def read_excel(data: bytes, where: str) -> pa.Table:
    """Read the first sheet with cells; its first row with cells holds the names. Formulas count as their last values.

    Args:
        data: The bytes of the workbook.
        where: Name of their source, for messages.

    Raises:
        TableError: openpyxl is missing, the data are no workbook, or no sheet has cells.
    """
    try:
        from openpyxl import load_workbook
    except ModuleNotFoundError as error:
        raise TableError(f"{where}: Excel files take the package openpyxl: {HOW_TO_INSTALL}") from error
    try:
        book = load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    except Exception as error:  # openpyxl raises whatever the parts of a damaged file cause
        raise TableError(f"{where} is not a whole Excel workbook (.xlsx): {error}") from error
    filled = []
    for sheet in book.worksheets:
        rows = [list(row) for row in sheet.iter_rows(values_only=True)]
        rows = [row for row in rows if any(cell is not None and str(cell).strip() for cell in row)]
        if rows:
            filled.append((sheet.title, rows))
    if not filled:
        raise TableError(f"{where}: no sheet has cells")
    title, rows = filled[0]
    table = _table(rows)
    if len(filled) == 1:
        return table
    return with_notes(table, [f"read the sheet {title!r}, the first of {len(filled)} with cells"])


def _table(rows: list[list[Any]]) -> pa.Table:
    head, *body = rows
    width = max(position + 1 for row in rows for position, cell in enumerate(row) if cell is not None and cell != "")
    names = ["" if name is None else str(name).strip() for name in [*head, *[None] * width][:width]]
    columns = [[_cell(row[position]) if position < len(row) else None for row in body] for position in range(width)]
    return pa.Table.from_arrays([_column(cells) for cells in columns], names=names)


def _cell(cell: Any) -> Any:
    if isinstance(cell, str):
        stripped = cell.strip()
        return None if not stripped or stripped in _ERRORS else stripped
    if isinstance(cell, time):
        return timedelta(hours=cell.hour, minutes=cell.minute, seconds=cell.second, microseconds=cell.microsecond)
    if isinstance(cell, date) and not isinstance(cell, datetime):
        return datetime(cell.year, cell.month, cell.day)
    return cell


def _column(cells: list[Any]) -> pa.Array:
    types = {type(cell) for cell in cells if cell is not None}
    if types and types <= {datetime}:
        return pa.array(cells, pa.timestamp("us"))
    if types and types <= {timedelta}:
        return pa.array(cells, pa.duration("us"))
    return column_of_cells([_plain(cell) for cell in cells])


def _plain(cell: Any) -> Any:
    """A cell of a column with cells of several types: dates and durations as text."""
    if isinstance(cell, datetime):
        return cell.isoformat()
    return str(cell) if isinstance(cell, timedelta) else cell
