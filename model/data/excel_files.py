"""Excel workbooks (``.xlsx``) as tables, with openpyxl, which the extra ``excel`` installs."""

from __future__ import annotations

import io
import zipfile
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from murho.model.data.json_files import column_of_cells
from murho.model.data.table_notes import with_notes
from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read_excel"]

HOW_TO_INSTALL = "install it with pip install '.[excel]' in a clone of Murho's repository, or save the sheet as CSV"
_MOST_BYTES = 2**30
_MOST_ROWS = 2**20
"""Excel has no more."""
_MOST_CELLS = 2**25
_ERRORS = frozenset({"#N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"})


def read_excel(data: bytes, where: str) -> pa.Table:
    """Read the first sheet with cells; its first row with cells holds the names. Formulas count as their last values.

    Args:
        data: The bytes of the workbook.
        where: Name of their source, for messages.

    Raises:
        TableError: openpyxl is missing, the data are no workbook or one that is too large, or no sheet has cells.
    """
    try:
        from openpyxl import load_workbook
    except ModuleNotFoundError as error:
        raise TableError(f"{where}: Excel files take the package openpyxl: {HOW_TO_INSTALL}") from error
    title, rows, filled = "", [], 0
    try:
        _check_size(data, where)
        for sheet in load_workbook(io.BytesIO(data), read_only=True, data_only=True).worksheets:
            found = _rows(sheet, where)
            if (first := next(found, None)) is None:
                continue
            filled += 1
            if filled == 1:
                title, rows = sheet.title, [first, *found]
    except (TableError, MemoryError):
        raise
    except Exception as error:  # openpyxl raises whatever the parts of a damaged file cause
        raise TableError(f"{where} is not a whole Excel workbook (.xlsx): {error}") from error
    if not filled:
        raise TableError(f"{where}: no sheet has cells")
    table = _table(rows)
    if filled == 1:
        return table
    return with_notes(table, [f"read the sheet {title!r}, the first of {filled} with cells"])


def _check_size(data: bytes, where: str) -> None:
    """Refuse a workbook that unpacks to too much; no more than it says is unpacked."""
    with zipfile.ZipFile(io.BytesIO(data)) as parts:
        unpacked = sum(part.file_size for part in parts.infolist())
    if unpacked > _MOST_BYTES:
        raise TableError(
            f"{where} unpacks to {unpacked} bytes, more than the {_MOST_BYTES} that are read: save it as CSV"
        )


def _rows(sheet: Any, where: str) -> Iterator[list[Any]]:
    """The rows of a sheet that have cells. What it says of its size, and of gaps in it, can be anything."""
    sheet.reset_dimensions()
    cells = 0
    for count, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        filled = any(cell is not None and str(cell).strip() for cell in row)
        cells += len(row) * filled
        if count > _MOST_ROWS or cells > _MOST_CELLS:
            raise TableError(
                f"{where}: the sheet {sheet.title!r} has more than {_MOST_ROWS} rows or {_MOST_CELLS} cells: "
                "save it as CSV"
            )
        if filled:
            yield list(row)


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
