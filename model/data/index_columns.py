"""Columns without a name: the index that ``df.to_csv()`` writes, and the empty column after a last separator."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from murho.model.data.table_notes import with_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PANDAS_INDEX", "without_index"]

PANDAS_INDEX = re.compile(r"__index_level_[0-9]+__")
_NAME = "index"


def without_index(table: pa.Table) -> pa.Table:
    """Drop the columns without a name that only number the rows, or are empty, with a note on each.

    The first column without a name is called ``index`` if it holds something else, such as dates or names.
    """
    dropped, notes, names = [], [], list(table.column_names)
    for position, name in enumerate(names):
        column = table.column(position)
        if not name.strip():
            if column.null_count == len(column) and len(names) > 1 and position > 0:
                notes.append(f"column {position + 1} has no name and no cells: dropped")
                dropped.append(position)
            elif position == 0 and _whole_numbers(column):
                notes.append("column 1 has no name and numbers the rows, as the index that df.to_csv() writes: dropped")
                dropped.append(position)
            elif position == 0 and _NAME not in names and len(column) > 0:
                notes.append(f"column 1 has no name, and is called {_NAME!r}")
                names[0] = _NAME
        elif PANDAS_INDEX.fullmatch(name) and _whole_numbers(column):
            notes.append(f"column {name!r} is the index that pandas writes: dropped")
            dropped.append(position)
    if not notes or len(dropped) == len(names):
        return table
    kept = _kept(table.rename_columns(names), dropped).replace_schema_metadata(table.schema.metadata)
    return with_notes(kept, notes)


def _kept(table: pa.Table, dropped: Sequence[int]) -> pa.Table:
    return table.select([position for position in range(table.num_columns) if position not in dropped])


def _whole_numbers(column: pa.ChunkedArray) -> bool:
    """Whether all cells are there, are whole numbers, and differ."""
    if column.null_count or len(column) == 0:
        return False
    try:
        numbers = pc.cast(column, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return bool(pc.count_distinct(numbers).as_py() == len(column))
