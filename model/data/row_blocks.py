"""Rows of a table as canonical columns, a block at a time: the memory that it takes does not grow with the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.arrow_values import rows_of
from murho.model.data.schema_inference import columns_from_table
from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns, Schema

__all__ = ["ROWS_PER_BLOCK", "check_rows", "column_blocks", "numbered_in_table"]

ROWS_PER_BLOCK = 16_384


def column_blocks(table: pa.Table, schema: Schema, rows: NDArray[np.int64]) -> Iterator[tuple[slice, Columns]]:
    """Canonical columns of chosen rows, from one block of the table after the other.

    Args:
        table: The table, as `model.data.tables.read_table` or `model.data.stored_tables.open_table` returns it.
        schema: Its features are read.
        rows: Indices of n rows, ascending. The cells of other rows may be anything.

    Yields:
        Which of the n rows a block has, and its columns, ``[B]`` each; blocks without such rows are passed over.

    Raises:
        TableError: A cell can't be used; the message names the row of the table, from 1.
    """
    for start in range(0, table.num_rows, ROWS_PER_BLOCK):
        first, last = np.searchsorted(rows, (start, start + ROWS_PER_BLOCK)).tolist()
        if first == last:
            continue
        within = rows[first:last] - start
        block = rows_of(table.slice(start, ROWS_PER_BLOCK), within)
        try:
            columns = columns_from_table(block, schema)
        except TableError as error:
            raise numbered_in_table(error, rows[first:last]) from error
        yield slice(first, last), columns


def check_rows(table: pa.Table, schema: Schema, rows: NDArray[np.int64]) -> None:
    """Read the rows of a table that has several blocks, so that a bad cell is said before hours of work.

    Raises:
        TableError: As `column_blocks`.
    """
    if table.num_rows > ROWS_PER_BLOCK:
        for _ in column_blocks(table, schema, rows):
            pass


def numbered_in_table(error: TableError, rows: NDArray[np.int64]) -> TableError:
    """An error about some rows of a table, with the number of its row in the table.

    Args:
        error: What was said of the rows.
        rows: Their indices in the table, ``[B]``.
    """
    if error.row is None:
        return error
    row = int(rows[error.row - 1]) + 1
    return TableError(str(error).replace(f", row {error.row}:", f", row {row}:", 1), row=row)
