"""Writing a Parquet file a row group at a time: whole, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from murho.model.errors import TableError
from murho.model.runtime.durable_files import written_whole

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from pyarrow import parquet

__all__ = ["ROWS_PER_GROUP", "ParquetWriter"]

ROWS_PER_GROUP = 131_072
"""Rows that are gathered before they are written: smaller groups would be packed worse, and read more slowly."""


class ParquetWriter:
    """A context in which a Parquet file is written. The file is there when it ends, unless an error ends it.

    The first row group has the types of all. A column without a value in it is of texts.
    """

    def __init__(self, path: Path) -> None:
        """Store the path of the file."""
        self._path = path
        self._whole = written_whole(path)
        self._waiting: list[pa.Table] = []
        self._writer: parquet.ParquetWriter | None = None

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
            TableError: The file can't be written, or a column has cells of another type than before.
        """
        self._waiting.append(table)
        if sum(part.num_rows for part in self._waiting) >= ROWS_PER_GROUP:
            self._write_group()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put the file into its place, or remove it after an error.

        Raises:
            TableError: It can't be written.
        """
        try:
            try:
                if kind is None:
                    self._write_group()
            finally:
                self._close()
        except BaseException as failure:
            self._whole.__exit__(type(failure), failure, failure.__traceback__)
            raise
        try:
            self._whole.__exit__(kind, error, trace)
        except OSError as failure:
            if failure is error:
                raise
            raise self._failure(failure) from failure

    def _close(self) -> None:
        """Write the end of the file; after an error this may fail, and the file is removed anyway."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close()
        except (pa.ArrowException, OSError) as error:
            writer.is_open = False  # it would be closed again when it is collected
            raise TableError(f"{self._path} can't be written: {error}") from error

    def _write_group(self) -> None:
        """Write what waits as one row group."""
        from pyarrow import parquet  # takes a while, and few tables need it

        if not self._waiting:
            return
        try:
            # A chunk without a text has no type of its own.
            group = pa.concat_tables(self._waiting, promote_options="default").combine_chunks()
            self._waiting.clear()
            if self._writer is None:
                self._writer = parquet.ParquetWriter(self._file, _typed(group.schema))
            self._writer.write_table(group.cast(self._writer.schema), row_group_size=group.num_rows)
        except pa.ArrowException as error:
            raise TableError(f"{self._path}: {error}") from error
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> TableError:
        return TableError(f"{self._path} can't be written: {error.strerror or error}")


def _typed(schema: pa.Schema) -> pa.Schema:
    """The types of all rows, from those of some: a text that some lack may come later."""
    return pa.schema(
        [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema], schema.metadata
    )
