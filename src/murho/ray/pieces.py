"""A data set cut into pieces of consecutive rows: by file and row alone, so that every run makes the same pieces."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from murho.model.errors import OptionError, TableError
from murho.model.tables.files import require_file
from murho.model.tables.formats import file_chunks, parse_csv, record_ends, separator_and_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["CSV", "PARQUET", "Piece", "Source", "find_sources", "first_rows", "read_piece", "source_of"]

CSV, PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
"""Extensions of files of which a piece can be read without the rest."""
HEADER_BYTES = 2**20
ROWS_PER_READ = 2**16


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of a file.

    Attributes:
        part: Name of the file that the answers go to: position of the input file and of the piece.
        first: Number of the first row in its file, from 0.
        rows: Number of rows.
        begin: For CSV: offset of the first byte.
        end: For CSV: offset behind the last byte.
    """

    part: str
    first: int
    rows: int
    begin: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """A file of the data set, and its pieces.

    Attributes:
        path: The file, absolute.
        size: Its bytes when it was cut.
        changed: Its time of change then, in nanoseconds.
        separator: Separator of a CSV file; empty for Parquet.
        header: Bytes of the header of a CSV file.
        pieces: Its pieces, in the order of the rows.
    """

    path: Path
    size: int
    changed: int
    separator: str
    header: bytes
    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(piece.rows for piece in self.pieces)


def find_sources(data: Iterable[Path]) -> list[Path]:
    """The files of a data set: those given, and those in given directories, sorted by name, hidden ones left out.

    Raises:
        TableError: A file does not exist, or a directory has no CSV or Parquet file.
        OptionError: A file has another format, or comes twice.
    """
    found: list[Path] = []
    for path in data:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(
            entry
            for entry in path.rglob("*")
            if entry.suffix.lower() in CSV + PARQUET
            and not any(part.startswith((".", "_")) for part in entry.relative_to(path).parts)
        )
        if not inside:
            raise TableError(f"{path} is a directory without a CSV or Parquet file")
        found += inside
    files = [path.absolute() for path in found]
    for path in files:
        if path.suffix.lower() in CSV + PARQUET:
            require_file(path)
        else:
            require_file(path)
            raise OptionError(
                f"{path}: --engine ray reads {', '.join(CSV + PARQUET)}, of which a piece can be read without the rest"
            )
    if len(set(files)) < len(files):
        twice = next(path for path in files if files.count(path) > 1)
        raise OptionError(f"{twice} is given twice: its rows would be scored twice")
    return files


def source_of(path: Path, number: int, rows_per_piece: int) -> Source:
    """A file, cut into pieces of a fixed number of rows; the last has the rest. Memory is bounded.

    Args:
        path: The file.
        number: Its position in the data set.
        rows_per_piece: Rows of a piece.

    Raises:
        TableError: The file is no whole CSV or Parquet file.
    """
    entry = path.stat()
    if path.suffix.lower() in PARQUET:
        rows = _parquet(path).metadata.num_rows
        pieces = tuple(
            Piece(_part(number, index), first, min(rows_per_piece, rows - first))
            for index, first in enumerate(range(0, rows, rows_per_piece))
        )
        return Source(path, entry.st_size, entry.st_mtime_ns, "", b"", pieces)
    separator = separator_and_names(_start(path), str(path))[0]
    return Source(path, entry.st_size, entry.st_mtime_ns, separator, *_cut(path, number, separator, rows_per_piece))


def _cut(path: Path, number: int, separator: str, rows_per_piece: int) -> tuple[bytes, tuple[Piece, ...]]:
    """The bytes of the header, and the pieces."""
    header_end, count, last = None, 0, 0  # `count` records after the header, the last of them ends at `last`
    cuts: list[int] = []  # offsets behind every `rows_per_piece` records
    for ends in record_ends(file_chunks(path), separator, str(path)):
        if header_end is None and len(ends):
            header_end, ends = int(ends[0]), ends[1:]
        if not len(ends):
            continue
        whole = slice(rows_per_piece - 1 - count % rows_per_piece, None, rows_per_piece)
        cuts += ends[whole].tolist()
        count, last = count + len(ends), int(ends[-1])
    if header_end is None:
        raise TableError(f"{path} is empty: expected a header line with the column names, then one line a row")
    if count % rows_per_piece:
        cuts.append(last)
    begins = [header_end, *cuts[:-1]]
    pieces = tuple(
        Piece(
            _part(number, index),
            index * rows_per_piece,
            min(rows_per_piece, count - index * rows_per_piece),
            begin,
            end,
        )
        for index, (begin, end) in enumerate(zip(begins, cuts, strict=bool(cuts)))
    )
    with path.open("rb") as file:
        return file.read(header_end), pieces


def _part(number: int, index: int) -> str:
    return f"part-{number:05d}-{index:06d}.parquet"


def first_rows(path: Path, count: int) -> pa.Table:
    """The first rows of a file, with the names of all its columns; memory is bounded.

    Raises:
        TableError: The file can't be read.
    """
    if path.suffix.lower() in PARQUET:
        file = _parquet(path)
        with _as_table_errors(path):
            batch = next(file.iter_batches(batch_size=count), None)
        return pa.table(file.schema_arrow.empty_table() if batch is None else batch)
    start = _start(path)
    if not start.strip():
        return parse_csv(start, str(path))
    separator = separator_and_names(start, str(path))[0]
    # To the end of a row: a line may end within a quoted cell.
    ends = next(record_ends(file_chunks(path, HEADER_BYTES), separator, str(path)))
    with _as_table_errors(path), path.open("rb") as file:
        data = file.read(int(ends[-1]))
    return parse_csv(data, str(path), separator=separator).slice(0, count)


def read_piece(source: Source, piece: Piece, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a piece.

    Args:
        source: Its file.
        piece: The piece.
        columns: Names of the columns of a Parquet file that are needed; None: all.

    Raises:
        TableError: The file has changed since it was cut, or is damaged; the message names the rows.
    """
    path = source.path
    with _as_table_errors(path):
        entry = path.stat()
        if (entry.st_size, entry.st_mtime_ns) != (source.size, source.changed):
            raise TableError(f"{path} has changed since the job began: start again with another --output")
        if not source.separator:
            return _read_parquet(path, piece, columns)
        with path.open("rb") as file:
            file.seek(piece.begin)
            data = file.read(piece.end - piece.begin)
    where = f"{path}, rows {piece.first + 1} to {piece.first + piece.rows}"
    table = parse_csv(source.header + data, where, separator=source.separator)
    if table.num_rows != piece.rows:
        raise TableError(f"{where}: {table.num_rows} rows are read: check the quotes and line breaks there")
    return table


def _read_parquet(path: Path, piece: Piece, columns: Sequence[str] | None) -> pa.Table:
    file = _parquet(path)
    groups, begin, skipped = [], 0, 0
    for group in range(file.metadata.num_row_groups):
        end = begin + file.metadata.row_group(group).num_rows
        if end > piece.first and begin < piece.first + piece.rows:
            groups.append(group)
        elif end <= piece.first:
            skipped = end
        begin = end
    wanted = None if columns is None else list(columns)
    batches = file.iter_batches(batch_size=ROWS_PER_READ, row_groups=groups, columns=wanted, use_threads=False)
    return pa.Table.from_batches(list(_rows(batches, piece.first - skipped, piece.rows)))


def _rows(batches: Iterable[pa.RecordBatch], skip: int, count: int) -> Iterator[pa.RecordBatch]:
    """The rows ``skip`` to ``skip + count`` of consecutive batches."""
    for batch in batches:
        if skip < batch.num_rows:
            taken = batch.slice(skip, count)
            yield taken
            count -= taken.num_rows
        skip = max(0, skip - batch.num_rows)
        if not count:
            return


def _parquet(path: Path) -> Any:
    from pyarrow import parquet

    with _as_table_errors(path):
        return parquet.ParquetFile(path)


def _start(path: Path) -> bytes:
    """The first bytes of a CSV file, to the end of a line if there are more."""
    with _as_table_errors(path), path.open("rb") as file:
        data = file.read(HEADER_BYTES)
    return data if len(data) < HEADER_BYTES else data[: data.rfind(b"\n") + 1] or data


@contextmanager
def _as_table_errors(path: Path) -> Iterator[None]:
    """Errors of files and formats as `TableError`."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise TableError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error
