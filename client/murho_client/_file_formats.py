"""CSV and Parquet files, read and written a chunk of rows at a time. Parquet takes pyarrow."""

from __future__ import annotations

import csv
import json
import os
import secrets
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from murho_client._errors import InvalidInput, Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["CSV", "PARQUET", "Chunk", "Writer", "read_chunks", "unusable", "written"]

CSV, PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
SEPARATORS = (",", ";", "\t", "|")


class Chunk(NamedTuple):
    """Consecutive rows of a file.

    Attributes:
        columns: The columns of the file by name, ``[B]`` each: lists of texts (CSV) or Arrow arrays (Parquet).
        rows: B.
        labels: What people call the rows: ``line 7`` in a CSV file, ``row 6`` (from 1) in a Parquet file.
    """

    columns: dict[str, Any]
    rows: int
    labels: Sequence[str]


class Writer(Protocol):
    """Writes the columns of one chunk after the other."""

    def write(self, columns: Mapping[str, Any]) -> None:
        """Append rows: name to values ``[B]``."""
        ...

    def close(self) -> None:
        """End the file."""
        ...


def unusable(path: Path, message: str) -> InvalidInput:
    """The error that a file can't be used."""
    return InvalidInput([Problem(f"{path}: {message}")])


def read_chunks(source: Path, rows: int, wanted: Collection[str] | None = None) -> Iterator[Chunk]:
    """The rows of a file, a chunk at a time.

    Args:
        source: The file.
        rows: The most rows of a chunk.
        wanted: Columns to read of a Parquet file; by default all.

    Raises:
        InvalidInput: The file is damaged, or its header has empty or repeated names.
        ModuleNotFoundError: A Parquet file takes pyarrow.
    """
    return _csv_chunks(source, rows) if source.suffix.lower() in CSV else _parquet_chunks(source, rows, wanted)


def _csv_chunks(source: Path, rows: int) -> Iterator[Chunk]:
    with source.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        try:
            head = next((line for line in file if line.strip()), "")
            separator = max(SEPARATORS, key=head.count)
            file.seek(0)
            reader = csv.reader(file, delimiter=separator, strict=True)
            names = [name.strip() for name in next((line for line in reader if any(line)), [])]
            _check_names(source, names)
            while lines := list(islice(_lines(source, reader, len(names)), rows)):
                labels = [f"line {number}" for number, _ in lines]
                columns = zip(*(cells for _, cells in lines), strict=True)
                yield Chunk(dict(zip(names, map(list, columns), strict=True)), len(lines), labels)
        except csv.Error as error:
            raise unusable(source, f"line {reader.line_num}: {error}: check the quotes from this line on") from error
        except UnicodeDecodeError as error:
            raise unusable(source, "the file is not UTF-8 text: save it as UTF-8") from error


def _lines(source: Path, reader: Any, width: int) -> Iterator[tuple[int, list[str]]]:
    before = reader.line_num
    for cells in reader:
        number, before = before + 1, reader.line_num
        if not cells:
            continue
        if len(cells) != width:
            raise unusable(source, f"line {number}: {len(cells)} cells where the header has {width}")
        yield number, cells


def _check_names(source: Path, names: Sequence[str]) -> None:
    if not names:
        raise unusable(source, "the file is empty: the first line names the columns")
    for place, name in enumerate(names, start=1):
        if not name:
            raise unusable(source, f"column {place} has no name: name every column")
        if name in names[: place - 1]:
            raise unusable(source, f"two columns are named {name!r}: names must differ")


def _parquet_chunks(source: Path, rows: int, wanted: Collection[str] | None) -> Iterator[Chunk]:
    pa = _pyarrow(source)
    with source.open("rb") as opened:
        try:
            file = pa.parquet.ParquetFile(opened)
            _check_names(source, file.schema_arrow.names)
            first = 1
            names = None if wanted is None else [name for name in file.schema_arrow.names if name in wanted]
            for batch in file.iter_batches(batch_size=rows, columns=names):
                if batch.num_rows:
                    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                    yield Chunk(columns, batch.num_rows, [f"row {first + place}" for place in range(batch.num_rows)])
                    first += batch.num_rows
        except pa.ArrowException as error:
            raise unusable(source, f"not a whole Parquet file: {error}") from error


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{path}: Parquet files take pyarrow: pip install pyarrow") from error
    return pa


@contextmanager
def written(destination: Path) -> Iterator[Writer]:
    """A writer of the destination, which is there when the block has ended without an error."""
    temporary = destination.with_name(f".{destination.name}.{secrets.token_hex(4)}.tmp")
    make = CSVWriter if destination.suffix.lower() in CSV else ParquetWriter
    try:
        writer = make(temporary)
        try:
            yield writer
        finally:
            writer.close()
        temporary.replace(destination)
    finally:
        temporary.unlink(missing_ok=True)


class CSVWriter:
    """Comma-separated lines; numbers as the shortest text that reads back the same, missing cells empty."""

    def __init__(self, path: Path) -> None:
        """Create the file, which must not exist."""
        self._file = path.open("x", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._begun = False

    def write(self, columns: Mapping[str, Any]) -> None:
        """Append rows; see `Writer.write`."""
        if not self._begun:
            self._writer.writerow(columns)
            self._begun = True
        self._writer.writerows(zip(*(_texts(values) for values in columns.values()), strict=True))

    def close(self) -> None:
        """Bring the file to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


def _texts(values: Any) -> list[Any]:
    """Cells for ``csv.writer``, which writes floats by `repr` and None as an empty cell."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    elif not isinstance(values, list):
        values = values.to_pylist()
    return [_text(value) for value in values]


def _text(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


class ParquetWriter:
    """A Parquet file with a row group per chunk."""

    def __init__(self, path: Path) -> None:
        """Create the file, which must not exist."""
        self._pa = _pyarrow(path)
        self._file = path.open("xb")
        self._writer: Any = None

    def write(self, columns: Mapping[str, Any]) -> None:
        """Append rows; see `Writer.write`."""
        pa = self._pa
        table = pa.table({name: _array(pa, values) for name, values in columns.items()})
        if self._writer is None:
            self._writer = pa.parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table.cast(self._writer.schema))

    def close(self) -> None:
        """Bring the file to the disk."""
        if self._writer is not None:
            self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


def _array(pa: Any, values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return pa.array(np.ascontiguousarray(values), from_pandas=True)
    return pa.array(values) if isinstance(values, list) else values
