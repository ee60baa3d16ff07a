"""Writing CSV a part at a time: a file whole or not at all, or to stdout."""

from __future__ import annotations

import csv
import io
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv

from murho.model.errors import TableError
from murho.model.runtime.durable_files import written_whole

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType
    from typing import Any, Self

__all__ = ["CsvWriter", "csv_header", "csv_rows"]

_ROWS = 8192


def csv_header(table: pa.Table) -> bytes:
    """The first line of CSV, in UTF-8."""
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(table.column_names)
    return header.getvalue().encode()


def csv_rows(table: pa.Table, *, quoting: str) -> bytes:
    """The other lines. Numbers are the shortest text that reads back as the same float64; missing cells are empty.

    Args:
        table: The rows.
        quoting: ``none``; or ``needed``, which quotes all texts.

    Raises:
        pa.ArrowInvalid: A text needs quotes, and ``quoting`` is ``none``.
        pa.ArrowException: CSV has no text for the cells.
    """
    parts = []
    # Rows by the thousands: growing one buffer, and joining small parts, would hold up other threads of a service.
    for start in range(0, table.num_rows, _ROWS):
        part = io.BytesIO()
        options = pa.csv.WriteOptions(include_header=False, quoting_style=quoting)
        pa.csv.write_csv(table.slice(start, _ROWS), part, options)
        parts.append(part.getvalue())
    return b"".join(parts)


class CsvWriter:
    """A context in which CSV is written. A file is there when it ends, unless an error ends it.

    Texts are quoted from the first part on in which one needs it.
    """

    def __init__(self, path: Path | None) -> None:
        """Store the path of the file; None: stdout, which has each part at once."""
        self._path = path
        self._whole: AbstractContextManager[Any] = nullcontext(_Stdout()) if path is None else written_whole(path)
        self._quoting, self._begun = "none", False

    def __enter__(self) -> Self:
        """Begin a file beside the one that will be replaced.

        Raises:
            TableError: It can't be written.
        """
        try:
            self._file = self._whole.__enter__()
        except OSError as error:
            raise self._failure(error) from error
        return self

    def write(self, table: pa.Table) -> None:
        """Write further rows; all have the columns of the first.

        Raises:
            TableError: The file can't be written, or CSV has no text for the cells.
        """
        try:
            if not self._begun:
                self._file.write(csv_header(table))
                self._begun = True
            self._file.write(self._rows(table))
        except pa.ArrowException as error:
            raise TableError(f"the table can't be written as CSV; write .parquet instead: {error}") from error
        except BrokenPipeError:  # whoever reads stdout has enough: the command line ends in silence
            raise
        except OSError as error:
            raise self._failure(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put the file into its place, or remove it after an error.

        Raises:
            TableError: It can't be written.
        """
        try:
            self._whole.__exit__(kind, error, trace)
        except OSError as failure:
            if failure is error:
                raise
            raise self._failure(failure) from failure

    def _rows(self, table: pa.Table) -> bytes:
        try:
            return csv_rows(table, quoting=self._quoting)
        except pa.ArrowInvalid:
            if self._quoting == "needed":
                raise
            self._quoting = "needed"
            return csv_rows(table, quoting=self._quoting)

    def _failure(self, error: OSError) -> TableError:
        return TableError(f"{self._path or 'stdout'} can't be written: {error.strerror or error}")


class _Stdout:
    """Stdout as it is now, as a file of bytes."""

    def __init__(self) -> None:
        self._stdout = sys.stdout

    def write(self, data: bytes) -> None:
        self._stdout.write(data.decode())
        self._stdout.flush()
