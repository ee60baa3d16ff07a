"""Writing CSV a part at a time: a file whole or not at all, or to stdout."""

from __future__ import annotations

import csv
import io
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv

from murho.model.errors import TableError
from murho.model.runtime.durable_files import written_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["as_csv", "csv_writer", "naming_failures", "writing"]

_ROWS = 8192


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
    """A context with a file to write, which takes its place at the end, unless an error ends the context.

    Raises:
        TableError: It can't be written.
    """
    with ExitStack() as stack:
        with naming_failures(path):
            file = stack.enter_context(written_whole(path))
        yield file
        with naming_failures(path):
            stack.close()


def as_csv(table: pa.Table, *, quoting: str = "none", header: bool = True) -> tuple[bytes, str]:
    """Rows as CSV in UTF-8. Numbers are the shortest text that reads back as the same float64; missing cells are empty.

    Args:
        table: The rows.
        quoting: ``none``; or ``needed``, which quotes all texts.
        header: Whether the names come first.

    Returns:
        The text, and the quoting that it took: ``needed`` if a text has to be quoted.

    Raises:
        TableError: CSV has no text for the cells.
    """
    try:
        try:
            rows = _rows(table, quoting)
        except pa.ArrowInvalid:
            quoting = "needed"
            rows = _rows(table, quoting)
    except MemoryError:  # Arrow's is an ArrowException, too
        raise
    except pa.ArrowException as error:
        raise TableError(f"the table can't be written as CSV; write .parquet instead: {error}") from error
    names = io.StringIO()
    csv.writer(names, lineterminator="\n").writerow(table.column_names)
    return (names.getvalue().encode() if header else b"") + rows, quoting


def _rows(table: pa.Table, quoting: str) -> bytes:
    parts = []
    # Rows by the thousands: growing one buffer, and joining small parts, would hold up other threads of a service.
    for start in range(0, table.num_rows, _ROWS):
        part = io.BytesIO()
        options = pa.csv.WriteOptions(include_header=False, quoting_style=quoting)
        pa.csv.write_csv(table.slice(start, _ROWS), part, options)
        parts.append(part.getvalue())
    return b"".join(parts)


@contextmanager
def csv_writer(path: Path | None) -> Iterator[Callable[[pa.Table], None]]:
    """A context with a function that writes further rows; all have the columns of the first.

    Texts are quoted from the first part on in which one needs it.

    Args:
        path: The file, which is there when the context ends, unless an error ends it; None: stdout.

    Raises:
        TableError: The file can't be written, or CSV has no text for the cells.
    """
    quoting, begun = "none", False
    with ExitStack() as stack:
        put = _print if path is None else stack.enter_context(writing(path)).write

        def write(table: pa.Table) -> None:
            nonlocal quoting, begun
            text, quoting = as_csv(table, quoting=quoting, header=not begun)
            begun = True
            with naming_failures(path):
                put(text)

        yield write


def _print(text: bytes) -> None:
    sys.stdout.write(text.decode())
    sys.stdout.flush()
