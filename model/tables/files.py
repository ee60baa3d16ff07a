"""Tables from files of any supported format: in memory, packed, or a block of rows at a time.

Whether a file is there, and whether its name tells a format, can be said before anything is read.

The cells of a file with millions of rows take several times its bytes in memory, as text. A training looks at them a
column at a time, so a large table stays packed: a column is unpacked when it is asked for, and not kept. The store is
Parquet: a Parquet file itself, or one in memory, into which a CSV file is written block by block while it is read.

Rows to predict come as canonical columns, a block at a time: the memory that it takes does not grow with the table.
"""

from __future__ import annotations

import gzip
import re
import zipfile
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from murho.model.errors import TableError
from murho.model.tables.columns import release_memory, rows_of
from murho.model.tables.formats import (
    csv_blocks,
    parse_csv,
    read_excel,
    read_json,
    read_json_lines,
    starts_with_object,
    to_utf8,
    with_notes,
)
from murho.model.tables.schema_inference import columns_from_table
from murho.model.tables.writers import as_csv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyarrow.parquet import ParquetFile

    from murho.model.tables.schema import Columns, Schema

__all__ = [
    "EXTENSIONS",
    "PANDAS_INDEX",
    "ROWS_PER_BLOCK",
    "StoredTable",
    "Unpacked",
    "check_names",
    "check_rows",
    "column_blocks",
    "csv_bytes",
    "format_of",
    "numbered_in_table",
    "open_table",
    "read_table",
    "require_file",
    "store_csv",
    "table_of_columns",
    "unpack",
    "without_index",
]


EXTENSIONS = (
    *(".csv", ".tsv", ".txt", ".parquet", ".pq", ".arrow", ".feather", ".arrows", ".ipc"),
    *(".json", ".jsonl", ".ndjson", ".xlsx"),
)
"""Extensions of the formats of tables; each may be packed, as ``.csv.gz`` or ``.zip``."""
_PACKED = (".gz", ".zip")
_JSON_STARTS = (b"{", b"[")
_PARTIAL = 64
"""Bytes of a file that tell whether its text is JSON."""


def format_of(name: str, start: bytes) -> str | None:
    """The extension that stands for the format of a file; None if neither its name nor its content tells one.

    Args:
        name: Name of the file, without ``.gz``.
        start: Its first bytes.
    """
    suffix = "." + name.lower().rpartition(".")[2] if "." in name else ""
    if suffix in EXTENSIONS:
        return suffix
    if start.startswith(b"PAR1"):
        return ".parquet"
    if start.startswith(b"ARROW1"):
        return ".arrow"
    if start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_JSON_STARTS):
        return ".json"
    return None


def require_file(path: Path) -> str | None:
    """Check that a file can be read and that its name or its first bytes tell a format.

    Returns:
        The extension that stands for the format; None for a zip archive, whose member tells it.

    Raises:
        TableError: It does not exist, is a directory, can't be read, or has an unknown format.
    """
    try:
        with path.open("rb") as file:
            start = file.read(_PARTIAL)
    except FileNotFoundError as error:
        raise TableError(f"{path} does not exist{_alike(path)}") from error
    except IsADirectoryError as error:
        raise TableError(f"{path} is a directory: give a file") from error
    except OSError as error:
        raise TableError(f"{path} can't be read: {error.strerror or error}") from error
    suffix = path.suffix.lower()
    name = path.name
    if suffix == ".gz":
        name = path.stem
        try:
            with gzip.open(path) as packed:
                start = packed.read(_PARTIAL)
        except (OSError, EOFError) as error:
            raise TableError(f"{path} is not a whole gzip file: {error}") from error
    extension = None if suffix == ".zip" else format_of(name, start)
    if suffix != ".zip" and extension is None:
        known = ", ".join((*EXTENSIONS, *_PACKED))
        raise TableError(f"{path}: the extension {path.suffix!r} is not known; use one of {known}")
    return extension


def _alike(path: Path) -> str:
    """The end of the message about a file that is not there: the name of one that may be meant."""
    import difflib

    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, n=1)
    return f": did you mean {path.with_name(close[0])}?" if close else ""


class Unpacked(NamedTuple):
    """The content of a file.

    Attributes:
        name: Name of the content: without ``.gz``, or that of the member of an archive.
        data: Its bytes.
        note: What to tell about it; empty if there is nothing.
    """

    name: str
    data: bytes
    note: str = ""


def unpack(path: Path) -> Unpacked | None:
    """The content of a packed file; None if its name is not that of a packed one.

    Raises:
        TableError: The file is damaged or locked, or an archive has not exactly one table.
        OSError: The file can't be read.
    """
    suffix = path.suffix.lower()
    if suffix == ".gz":
        try:
            return Unpacked(path.stem, gzip.decompress(path.read_bytes()))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise TableError(f"{path} is not a whole gzip file: {error}") from error
    return _member(path) if suffix == ".zip" else None


def _member(path: Path) -> Unpacked:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir() and _visible(info.filename)]
            tables = [name for name in names if name.lower().endswith(EXTENSIONS)]
            if len(tables) != 1:
                listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
                count = f"{len(tables)} tables" if tables else "no table"
                raise TableError(
                    f"{path} holds {count} ({listed or 'it is empty'}): unpack it, and give the file that is meant"
                )
            data = archive.read(tables[0])
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise TableError(f"{path} is not a whole zip archive: {error}") from error
    except RuntimeError as error:
        raise TableError(f"{path} is locked with a password: unpack it, and give the file within") from error
    others = len(names) - 1
    beside = f", beside {others} other files" if others else ""
    return Unpacked(tables[0].rpartition("/")[2], data, f"read {tables[0]} in the archive{beside}")


def _visible(name: str) -> bool:
    return not name.startswith("__MACOSX/") and not name.rpartition("/")[2].startswith(".")


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


def read_table(path: Path) -> pa.Table:
    """Read a table in the format that the file's extension names; ``.gz`` or ``.zip`` around it are unpacked.

    - CSV (``.csv``, ``.tsv``, ``.txt``): string columns, null for missing cells (`model.tables.formats`).
    - Parquet (``.parquet``, ``.pq``): columns keep their types.
    - Arrow files and streams (``.arrow``, ``.feather``, ``.arrows``, ``.ipc``): columns keep their types.
    - JSON: a list of objects (``.json``) or one object per line (``.jsonl``, ``.ndjson``). Columns come in the order of
      their first appearance, missing keys are missing cells, and a column that mixes texts and numbers is text. One
      object per line is recognised under other names, too.
    - Excel (``.xlsx``): the first sheet with cells (`model.tables.formats`).

    Texts may be UTF-8, UTF-16 or Latin-1. Columns without a name that number the rows are dropped. What was done beyond
    plain reading is noted (`model.tables.formats`).

    Args:
        path: The file.

    Returns:
        The table. Its column names are unique and non-empty; it may have no rows.

    Raises:
        TableError: The file doesn't exist, can't be read, has an unknown extension, or is damaged.
    """
    extension = require_file(path)
    where = str(path)
    try:
        unpacked = unpack(path)
        if extension is None and unpacked is not None:
            extension = format_of(unpacked.name, unpacked.data)
        extension = extension or ".csv"
        if unpacked is None and extension in _BINARY:
            table = _BINARY[extension](pa.memory_map(where).read_buffer(), where)
            return _named(without_index(table), path)
        unpacked = unpacked or Unpacked(path.name, path.read_bytes())
    except OSError as error:
        raise TableError(f"{path} can't be read: {error.strerror or error}") from error
    if extension in _BINARY:
        table = _BINARY[extension](pa.py_buffer(unpacked.data), where)
        notes = [unpacked.note]
    else:
        data, note = to_utf8(unpacked.data)
        notes = [unpacked.note, note]
        del unpacked
        table = _TEXTS[extension](data, where)
    return _named(without_index(with_notes(table, [note for note in notes if note])), path)


def csv_bytes(columns: Mapping[str, Any]) -> bytes:
    """Columns as CSV, in UTF-8.

    Raises:
        TableError: The columns differ in length, or have cells that CSV has no text for.
    """
    return as_csv(table_of_columns(columns))[0]


def _read_parquet(data: pa.Buffer, where: str) -> pa.Table:
    from pyarrow import parquet  # takes a while, and few tables need it

    try:
        table = parquet.ParquetFile(pa.BufferReader(data)).read()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{where} is not a whole Parquet file: {error}") from error
    return table


def _read_arrow(data: pa.Buffer, where: str) -> pa.Table:
    try:
        try:
            table = pa.ipc.open_file(data).read_all()
        except pa.ArrowInvalid:
            table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{where} is not a whole Arrow file or stream: {error}") from error
    return table


def _read_workbook(data: pa.Buffer, where: str) -> pa.Table:
    return read_excel(data.to_pybytes(), where)


def _read_text(data: bytes, where: str) -> pa.Table:
    return read_json_lines(data, where) if starts_with_object(data) else parse_csv(data, where)


def _named(table: pa.Table, path: Path) -> pa.Table:
    check_names(path, table.column_names)
    return table


def check_names(path: Path, names: list[str]) -> None:
    """Raise a TableError if a file has no columns, or one without a name, or two of the same name."""
    if not names:
        raise TableError(f"{path} has no columns")
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise TableError(f"{path}: column {position} has no name: name every column")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise TableError(f"{path}: {count} columns are named {name!r}: names must differ")


def table_of_columns(columns: Mapping[str, Any]) -> pa.Table:
    """Columns as a table: numpy arrays, pyarrow arrays, or sequences, ``[B]`` each.

    Raises:
        TableError: They differ in length.
    """
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise TableError(f"the columns to write differ in length: {lengths}")
    return pa.table(
        {
            name: values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(_plain(values))
            for name, values in columns.items()
        }
    )


def _plain(values: Any) -> Any:
    # pyarrow refuses strided views, such as one column of a matrix.
    return np.ascontiguousarray(values) if isinstance(values, np.ndarray) else list(values)


_BINARY: dict[str, Callable[[pa.Buffer, str], pa.Table]] = {
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
    ".arrows": _read_arrow,
    ".ipc": _read_arrow,
    ".xlsx": _read_workbook,
}
_TEXTS: dict[str, Callable[[bytes, str], pa.Table]] = {
    ".csv": _read_text,
    ".tsv": _read_text,
    ".txt": _read_text,
    ".json": read_json,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
}


LEAST_BYTES = 2**24
"""Bytes of a file from which on it is kept packed; below, reading it at once is faster."""
_BLOCK_BYTES = 2**20
_START_BYTES = 2**21
"""First bytes of a file, which tell its encoding and its columns."""
_MOST_OF_PACKED, _ROOM_BESIDE = 4, 2**20
"""A store takes at most as many bytes as the text, or so many times those of a text packed by gzip, and some more."""
_TEXT_ENDINGS = (".csv", ".tsv", ".txt")
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
        if extension in _TEXT_ENDINGS:
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


ROWS_PER_BLOCK = 16_384


def column_blocks(table: pa.Table, schema: Schema, rows: NDArray[np.int64]) -> Iterator[tuple[slice, Columns]]:
    """Canonical columns of chosen rows, from one block of the table after the other.

    Args:
        table: The table, as `model.tables.files.read_table` or `model.tables.files.open_table` returns it.
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
