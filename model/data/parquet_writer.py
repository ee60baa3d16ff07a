"""Writing a Parquet file a row group at a time: whole, or not at all."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from murho.model.data.csv_writer import naming_failures, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyarrow import parquet

__all__ = ["ROWS_PER_GROUP", "parquet_writer"]

ROWS_PER_GROUP = 131_072
"""Rows that are gathered before they are written: smaller groups would be packed worse, and read more slowly."""


@contextmanager
def parquet_writer(path: Path) -> Iterator[Callable[[pa.Table], None]]:
    """A context with a function that writes further rows; all have the columns of the first.

    The first row group has the types of all. A column without a value in it is of texts. The file is there when the
    context ends, unless an error ends it.

    Raises:
        TableError: The file can't be written, or a column has cells of another type than before.
    """
    from pyarrow import parquet  # takes a while, and few tables need it

    waiting: list[pa.Table] = []
    begun: list[parquet.ParquetWriter] = []

    def write(table: pa.Table) -> None:
        waiting.append(table)
        if sum(part.num_rows for part in waiting) >= ROWS_PER_GROUP:
            write_group()

    def write_group() -> None:
        with naming_failures(path):
            # A chunk without a text has no type of its own.
            group = pa.concat_tables(waiting, promote_options="default").combine_chunks()
            waiting.clear()
            if not begun:
                begun.append(parquet.ParquetWriter(file, _typed(group.schema)))
            begun[0].write_table(group.cast(begun[0].schema), row_group_size=group.num_rows)

    with writing(path) as file:
        try:
            yield write
            if waiting:
                write_group()
            for writer in begun:
                with naming_failures(path):
                    writer.close()
        finally:
            for writer in begun:
                writer.is_open = False  # after an error it would be closed when it is collected


def _typed(schema: pa.Schema) -> pa.Schema:
    """The types of all rows, from those of some: a text that some lack may come later."""
    return pa.schema(
        [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema], schema.metadata
    )
