"""Reading of tables: CSV, Parquet, Arrow, JSON records and Excel, chosen by the file's extension."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from murho.model.data.csv_files import parse_csv
from murho.model.data.csv_writer import as_csv
from murho.model.data.excel_files import read_excel
from murho.model.data.file_checks import format_of, require_file
from murho.model.data.index_columns import without_index
from murho.model.data.json_files import read_json, read_json_lines, starts_with_object
from murho.model.data.packed_files import Unpacked, unpack
from murho.model.data.table_notes import with_notes
from murho.model.data.text_encodings import to_utf8
from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["check_names", "csv_bytes", "read_table", "table_of_columns"]


def read_table(path: Path) -> pa.Table:
    """Read a table in the format that the file's extension names; ``.gz`` or ``.zip`` around it are unpacked.

    - CSV (``.csv``, ``.tsv``, ``.txt``): string columns, null for missing cells (`model.data.csv_files`).
    - Parquet (``.parquet``, ``.pq``): columns keep their types.
    - Arrow files and streams (``.arrow``, ``.feather``, ``.arrows``, ``.ipc``): columns keep their types.
    - JSON: a list of objects (``.json``) or one object per line (``.jsonl``, ``.ndjson``). Columns come in the order of
      their first appearance, missing keys are missing cells, and a column that mixes texts and numbers is text. One
      object per line is recognised under other names, too.
    - Excel (``.xlsx``): the first sheet with cells (`model.data.excel_files`).

    Texts may be UTF-8, UTF-16 or Latin-1. Columns without a name that number the rows are dropped. What was done beyond
    plain reading is noted (`model.data.table_notes`).

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
