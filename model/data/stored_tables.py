"""Large files as tables that are kept packed: a column is unpacked when it is asked for, and not kept.

The cells of a file with millions of rows take several times its bytes in memory, as text. A training looks at them a
column at a time, so the table as a whole is never unpacked. The store is Parquet: a Parquet file itself, or one in
memory, into which a CSV file is written block by block while it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from murho.model.data.arrow_values import release_memory
from murho.model.data.csv_files import csv_blocks
from murho.model.data.file_checks import require_file
from murho.model.data.index_columns import without_index
from murho.model.data.tables import check_names, read_table
from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyarrow.parquet import ParquetFile

__all__ = ["StoredTable", "open_table", "store_csv"]

LEAST_BYTES = 2**24
"""Bytes of a file from which on it is kept packed; below, reading it at once is faster."""
_BLOCK_BYTES = 2**20
_START_BYTES = 2**21
"""First bytes of a file, which tell its encoding and its columns."""
_MOST_OF_PACKED, _ROOM_BESIDE = 4, 2**20
"""A store takes at most as many bytes as the text, or so many times those of a text packed by gzip, and some more."""
_TEXTS = (".csv", ".tsv", ".txt")
_PARQUET = (".parquet", ".pq")


class StoredTable:
    """A table in a Parquet file. It has those methods of `pyarrow.Table` that a training needs, to the same effect.

    `column` unpacks one column, `slice` and `take` return a `pyarrow.Table` of some rows.
    """

    def __init__(self, file: ParquetFile, names: Sequence[str], places: Sequence[str], metadata: Any = None) -> None:
        """Choose columns of a file.

        Args:
            file: The file.
            names: Names of the columns.
            places: Their names in the file, where no two are the same.
            metadata: Metadata of the table, such as notes; bytes by key.
        """
        self._file, self._names, self._places, self._metadata = file, list(names), list(places), metadata
        self._last: tuple[str, pa.ChunkedArray] | None = None

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return list(self._names)

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self._names)

    @property
    def num_rows(self) -> int:
        """Number of rows, N."""
        return int(self._file.metadata.num_rows)

    @property
    def schema(self) -> pa.Schema:
        """Names, types and metadata."""
        stored = self._file.schema_arrow
        fields = [stored.field(place).with_name(name) for name, place in zip(self._names, self._places, strict=True)]
        return pa.schema(fields, self._metadata)

    def column(self, which: str | int) -> pa.ChunkedArray:
        """A column by its name or its number, ``[N]``. It is asked for several times in a row, so the last one stays.

        Raises:
            TableError: The file is damaged.
        """
        place = self._places[self._names.index(which) if isinstance(which, str) else which]
        if self._last is None or self._last[0] != place:
            self._last = None
            release_memory()
            self._last = (place, self._read(place))
        return self._last[1]

    def slice(self, offset: int, length: int) -> pa.Table:
        """The rows from ``offset`` on, ``length`` of them or those that are there."""
        groups, first, before = [], None, 0
        for group in range(self._file.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            if before < offset + length and before + rows > offset:
                groups.append(group)
                first = before if first is None else first
            before += rows
        table = self._file.read_row_groups(groups, columns=self._places, use_threads=False)
        return self._named(table).slice(offset - (first or 0), length)

    def take(self, rows: pa.Array) -> pa.Table:
        """The rows with the given indices."""
        columns = [self._read(place).take(rows) for place in self._places]
        return self._named(pa.table(columns, names=self._places))

    def select(self, places: Sequence[int]) -> StoredTable:
        """The table with the columns of these numbers alone."""
        return self._with([self._names[place] for place in places], [self._places[place] for place in places])

    def drop_columns(self, names: Sequence[str]) -> StoredTable:
        """The table without columns of these names."""
        return self.select([place for place, name in enumerate(self._names) if name not in names])

    def rename_columns(self, names: Sequence[str]) -> StoredTable:
        """The table with other names of its columns."""
        return self._with(names, self._places)

    def replace_schema_metadata(self, metadata: Mapping[bytes, bytes] | None) -> StoredTable:
        """The table with other metadata."""
        return StoredTable(self._file, self._names, self._places, metadata)

    def _with(self, names: Sequence[str], places: Sequence[str]) -> StoredTable:
        return StoredTable(self._file, names, places, self._metadata)

    def _named(self, table: pa.Table) -> pa.Table:
        return table.select(self._places).rename_columns(self._names).replace_schema_metadata(self._metadata)

    def _read(self, place: str) -> pa.ChunkedArray:
        column = self._file.read(columns=[place], use_threads=False).column(place)
        column.validate(full=True)
        return column


def open_table(path: Path) -> pa.Table | StoredTable:
    """The table in a file, for one look at each column: `read_table`'s, but kept packed if the file is large.

    CSV files, packed by gzip or not, and Parquet files are. Whatever is unusual about them is left to `read_table`,
    which knows what to do, or what to say.

    Raises:
        TableError: As `read_table`.
    """
    extension = require_file(path)
    if extension is None or path.stat().st_size < LEAST_BYTES:
        return read_table(path)
    stored = None
    try:
        if extension in _TEXTS:
            stored = store_csv(path)
        elif extension in _PARQUET and not _is_packed(path):
            stored = _parquet_columns(path)
    except (pa.ArrowException, OSError, MemoryError, TableError, UnicodeDecodeError):
        stored = None
    if stored is None:
        return read_table(path)
    table = without_index(stored)
    check_names(path, table.column_names)
    return table


def store_csv(path: Path, *, block_bytes: int = _BLOCK_BYTES) -> StoredTable | None:
    """The cells of a CSV file, in memory; None for a text that is no CSV, or in another encoding than UTF-8.

    Args:
        path: The file, packed by gzip or not.
        block_bytes: Bytes that are read at a time.

    Raises:
        TableError: The header line can't be read.
        pa.ArrowException: Something is wrong with the file.
        OSError: The file can't be read.
    """
    from pyarrow import parquet  # takes a while, and few tables need it

    with _opened(path) as stream:
        start = stream.read(_START_BYTES)
    text = start.removeprefix(b"\xef\xbb\xbf").strip()
    if not text or b"\0" in text or text.startswith((b"{", b"\xff\xfe", b"\xfe\xff")) or _is_cut(start):
        return None
    # Pages that nothing was written to take no memory; a buffer that grows would be copied while it grows.
    room = np.empty((_MOST_OF_PACKED if _is_packed(path) else 1) * path.stat().st_size + _ROOM_BESIDE, np.uint8)
    sink = pa.FixedSizeBufferWriter(pa.py_buffer(room))
    with _opened(path) as stream:
        names, blocks = csv_blocks(stream, start, str(path), block_bytes=block_bytes)
        schema = pa.schema([(str(place), pa.string()) for place in range(len(names))])
        with parquet.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            use_dictionary=False,
            column_encoding=dict.fromkeys(schema.names, "DELTA_LENGTH_BYTE_ARRAY"),
            write_statistics=False,
        ) as writer:
            for block in blocks:
                writer.write_table(pa.Table.from_batches([block]))  # write_batch would gather a million rows
    release_memory()
    stored = pa.py_buffer(room).slice(0, sink.tell())
    return StoredTable(parquet.ParquetFile(pa.BufferReader(stored)), names, schema.names)


def _parquet_columns(path: Path) -> StoredTable | None:
    """The columns of a Parquet file; None if two have the same name, or one is of parts with names of their own."""
    from pyarrow import parquet

    file = parquet.ParquetFile(path, memory_map=True)
    schema = file.schema_arrow
    if len(set(schema.names)) < len(schema.names) or any(pa.types.is_nested(field.type) for field in schema):
        return None
    table = StoredTable(file, schema.names, schema.names, schema.metadata)
    for name in schema.names:  # what is damaged is said now
        table.column(name)
    return table


def _is_cut(start: bytes) -> bool:
    """Whether the first line may go on beyond the first bytes of a file."""
    return len(start) == _START_BYTES and b"\n" not in start[: _START_BYTES // 2]


def _opened(path: Path) -> pa.NativeFile:
    file = pa.OSFile(str(path))
    return pa.CompressedInputStream(file, "gzip") if _is_packed(path) else file


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"
