"""Files of rows that commands write, whole or not at all: CSV a part at a time, Parquet a row group at a time."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyarrow import parquet

from murho.model.errors import TableError
from murho.model.files import write_whole
from murho.model.tables.csv_writer import as_csv


@contextmanager
def naming_failures(path: Path | None) -> Iterator[None]:
    """Raise what goes wrong while a file is written as a TableError with its name; None: stdout."""
    try:
        yield
    except (MemoryError, BrokenPipeError):  # whoever reads stdout has enough: the command line ends in silence
        raise
    except pa.ArrowException as error:
        raise TableError(f"{path}: {error}") from error
    except OSError as error:
        raise TableError(f"{path or 'stdout'} can't be written: {error.strerror or error}") from error


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Return a context with a file to write, which takes its place at the end, unless an error ends the context.

    Raises:
        TableError: It can't be written.
    """
    with ExitStack() as stack:
        with naming_failures(path):
            file = stack.enter_context(write_whole(path))
        yield file
        with naming_failures(path):
            stack.close()


@contextmanager
def csv_writer(path: Path | None) -> Iterator[Callable[[pa.Table], None]]:
    """Return a context with a function that writes further rows; all have the columns of the first.

    Args:
        path: The file, which is there when the context ends, unless an error ends it; None: stdout.

    Raises:
        TableError: The file can't be written, or CSV has no text for the cells.
    """
    begun = False
    with ExitStack() as stack:
        put = _print if path is None else stack.enter_context(writing(path)).write
        shown = path is None and sys.stdout.isatty()

        def write(table: pa.Table) -> None:
            nonlocal begun
            text, begun = as_csv(_rounded(table) if shown else table, header=not begun), True
            with naming_failures(path):
                put(text)

        yield write


def _rounded(table: pa.Table) -> pa.Table:
    """Return a table for a person to read: numbers with five digits that count, or whole."""
    for place, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            cells = [None if cell is None else float(f"{cell:.5g}") for cell in table.column(place).to_pylist()]
            table = table.set_column(place, field, pa.array(cells, field.type))
    return table


def _print(text: bytes) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.flush()
        sys.stdout.buffer.write(text)  # always UTF-8, whatever the terminal has
    else:
        sys.stdout.write(text.decode())
    sys.stdout.flush()


ROWS_PER_GROUP = 131_072
"""Rows that are gathered before they are written: smaller groups would be packed worse, and read more slowly."""


@contextmanager
def parquet_writer(path: Path) -> Iterator[Callable[[pa.Table], None]]:
    """Return a context with a function that writes further rows; all have the columns of the first.

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
                begun.append(parquet.ParquetWriter(file, _widen_types(group.schema)))
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


def _widen_types(schema: pa.Schema) -> pa.Schema:
    """Return the types of all rows, from those of some: a text that some lack may come later."""
    return pa.schema(
        [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema], schema.metadata
    )
