"""CSV files as tables of text columns.

Every cell stays text, and missing cells are null. Column kinds are inferred later, from whole columns and never from
a first block. Blanks around cells and names are dropped. The separator is a comma, semicolon, tab or bar.
"""

from __future__ import annotations

import csv
import io
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from murho.model.data.arrow_values import text_array
from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["MISSING_TOKENS", "csv_blocks", "parse_csv", "separator_and_names"]

MISSING_TOKENS = frozenset(
    {"", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "-nan", "NULL", "Null", "null", "None"}
)
"""Texts that mark a missing cell in a CSV file."""

_TOKENS = text_array(sorted(MISSING_TOKENS))
_LONGEST_TOKEN = pc.max(pc.binary_length(_TOKENS))
_NULL = pa.nulls(1, pa.string())[0]
_SEPARATORS = (",", ";", "\t", "|")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ENCODING_HINT = "save it as UTF-8"
_DIAGNOSED_BYTES = 2**22
_BLOCK_BYTES = 2**24


def parse_csv(
    data: bytes,
    where: str,
    *,
    check: Callable[[Sequence[str]], None] | None = None,
    separator: str | None = None,
    skipped: int = 0,
) -> pa.Table:
    """The table in the bytes of a CSV file with a header line: string columns, null for `MISSING_TOKENS`.

    Args:
        data: The bytes, with a header line.
        where: Name of their source, for messages.
        check: For data of strangers: gets the names before any row is read, as each column takes time and memory, and
            raises what is wrong with them. Errors in more than some megabytes of such data are not looked for line by
            line, because a line may be as long as all of them.
        separator: The separator, if it is known; by default the first lines tell it (`separator_and_names`).
        skipped: Lines of the source behind the header line that the data don't have, for messages.

    Raises:
        TableError: The data are empty, aren't UTF-8, have ragged lines or a quote that isn't closed, or the header
            can't be read.
    """
    start = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
    if not data[start : start + 4096].strip() and not data[start:].strip():
        raise TableError(f"{where} is empty: expected a header line with the column names, then one line a row")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:4096]:
        raise TableError(f"{where} is not UTF-8 text: {_ENCODING_HINT}")
    separator, names, more = _header(where, data[start:], separator, skipped)
    if check is not None:
        check(names)
    if not more:
        return pa.table([pa.nulls(0, pa.string())] * len(names), names=names)
    view = pa.py_buffer(data).slice(start)
    try:
        table = pa.csv.read_csv(
            _Blocks(pa.BufferReader(view)) if len(data) > _BLOCK_BYTES else view,
            **_reading(separator, len(names), _leading_blank_lines(data[start:]) + 1, _BLOCK_BYTES),
        )
    except MemoryError:  # Arrow's is an ArrowException, too
        raise
    except (pa.ArrowException, UnicodeDecodeError) as error:
        if "launch worker thread" in str(error):
            raise MemoryError from error
        if check is not None and len(data) > _DIAGNOSED_BYTES:
            if "straddl" in str(error):
                raise TableError(
                    f"{where}: a row takes more than {_BLOCK_BYTES // 2**20} MiB: is a quote not closed?"
                ) from error
            raise TableError(f"{where} can't be read as CSV: {str(error)[:200]}") from error
        raise _diagnosis(where, data[start:], separator, len(names), error, skipped) from error
    if table.num_rows and (quote := _open_quote(data, table, separator)) is not None:
        line = data.count(b"\n", 0, quote) + 1
        raise TableError(f"{where}, line {line + skipped}: a quote opens a cell there and isn't closed")
    columns = []
    while table.num_columns:  # a column at a time: the bytes of those before are given back
        column = table.column(0)
        table = table.remove_column(0)
        columns.append(_trimmed(column))
    return pa.table(columns, names=names)


def csv_blocks(
    stream: pa.NativeFile, start: bytes, where: str, *, block_bytes: int
) -> tuple[Sequence[str], Iterator[pa.RecordBatch]]:
    """The rows of a CSV file in UTF-8, a block at a time: the cells are those of `parse_csv`.

    Args:
        stream: The file, from its beginning.
        start: Its first bytes, two megabytes or all: they tell separator and names.
        where: Its name, for messages.
        block_bytes: Bytes that are read at a time; no row may be longer.

    Returns:
        The names of the columns, and the blocks; their columns are called ``0``, ``1``, … instead.

    Raises:
        TableError: The header line can't be read, as by `parse_csv`.
        pa.ArrowException: Something is wrong with the file; `parse_csv` says what. The blocks may raise it, too.
    """
    mark = len(_BYTE_ORDER_MARK) if start.startswith(_BYTE_ORDER_MARK) else 0
    separator, names, _ = _header(where, start[mark:])
    skipped = _leading_blank_lines(start[mark:]) + 1
    source = _Blocks(stream)
    reader = pa.csv.open_csv(source, **_reading(separator, len(names), skipped, block_bytes))

    def blocks() -> Iterator[pa.RecordBatch]:
        end = None
        for block in reader:
            yield pa.record_batch([_trimmed(column) for column in block.columns], names=block.schema.names)
            end = block.slice(block.num_rows - 1) if block.num_rows else end
        if end is not None and _open_quote(b"".join(source.last), end, separator) is not None:
            raise pa.ArrowInvalid("a quote isn't closed")

    return names, blocks()


def _open_quote(data: bytes, table: pa.Table | pa.RecordBatch, separator: str) -> int | None:
    """The position of the quote that isn't closed at the end of a text; None for none. Arrow takes such a cell.

    Only the last cell of the last row can be so: with a row that lacks others, the table isn't read.

    Args:
        data: The text, or at least its last row.
        table: The rows, or at least the last one, as Arrow reads it.
        separator: What separates its cells.
    """
    cell = b'"' + table.column(table.num_columns - 1)[-1].as_py().encode().replace(b'"', b'""')
    quote = len(data) - len(cell)
    before = (separator.encode(),) if table.num_columns > 1 else (b"\n", b"\r")
    return quote if data.endswith(cell) and data[quote - 1 : quote] in before else None


class _Blocks(io.RawIOBase):
    """A file in blocks that do not end between CR and LF: there Arrow would lose the LF, even in a quoted cell.

    Attributes:
        last: The last two blocks; a row is no longer than one.
    """

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream, self._kept = stream, b""
        self.last: deque[bytes] = deque(maxlen=2)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        block: bytes = self._kept + self._stream.read(size - len(self._kept) if size > 0 else None)
        cut = len(block) > 1 and block.endswith(b"\r")
        self._kept = b"\r" if cut else b""
        block = block[:-1] if cut else block
        if block:
            self.last.append(block)
        return block


def _reading(separator: str, columns: int, skipped: int, block_bytes: int) -> dict[str, object]:
    """Options of the fast reader: every cell is text."""
    names = [str(index) for index in range(columns)]
    return {
        # One thread keeps the rows in order and the errors reproducible.
        "read_options": pa.csv.ReadOptions(
            use_threads=False, block_size=block_bytes, column_names=names, skip_rows_after_names=skipped
        ),
        "parse_options": pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        "convert_options": pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
        ),
    }


def _trimmed(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The cells without blanks around them, null where they say that there is none."""
    column = pc.utf8_trim_whitespace(column)
    short = column.filter(pc.less_equal(pc.binary_length(column), _LONGEST_TOKEN))
    if not pc.any(pc.is_in(short, _TOKENS), min_count=0).as_py():  # takes half the time
        return column
    return pc.if_else(pc.is_in(column, _TOKENS), _NULL, column)


def separator_and_names(data: bytes, where: str) -> tuple[str, list[str]]:
    """The separator of a CSV file and the names of its columns, from its first bytes.

    Args:
        data: The file from its beginning to the end of some line, or all of it.
        where: Its name, for messages.

    Raises:
        TableError: The header line can't be read.
    """
    start = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
    return _header(where, data[start:])[:2]


def _leading_blank_lines(data: bytes) -> int:
    lines = data[: len(data) - len(data.lstrip(b"\r\n"))].replace(b"\r\n", b"\n")
    return len(lines)


def _header(where: str, data: bytes, known: str | None = None, skipped: int = 0) -> tuple[str, list[str], bool]:
    """Return the separator, the stripped names, and whether the file has rows.

    The separator is the one that splits the first lines into equal numbers of cells, and into the most cells, unless
    it is known.
    """
    # The sample ends with a whole line: a cut line would look ragged.
    sample = data if len(data) <= 1 << 20 else data[: data.rfind(b"\n", 0, 1 << 20) + 1] or data
    try:
        text = sample.decode()
    except UnicodeDecodeError as error:
        raise _not_utf8(where, data, error, skipped) from error
    best: tuple[bool, int, str, list[str], bool] | None = None
    for separator in _SEPARATORS if known is None else (known,):
        rows: list[list[str]] = []
        with suppress(csv.Error):  # such as a cell that is too long, but for this reader alone
            rows.extend(islice(filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=separator)), 20))
        if not rows:
            continue
        head, *others = rows
        agree = len(head) > 1 and all(len(row) == len(head) for row in others)
        if best is None or (agree, len(head)) > best[:2]:
            best = (
                agree,
                len(head),
                separator,
                [name.strip() for name in head],
                bool(others) or len(sample) < len(data),
            )
    if best is None:
        raise TableError(f"{where}: the header line can't be read as CSV: check its quotes")
    return best[2:]


def _diagnosis(where: str, data: bytes, separator: str, width: int, error: Exception, skipped: int) -> TableError:
    """Find the line on which the fast reader failed, with a slower reader that counts lines."""
    try:
        text = data.decode()
    except UnicodeDecodeError as decoding:
        return _not_utf8(where, data, decoding, skipped)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        for row in reader:
            if row and len(row) != width:
                return TableError(
                    f"{where}, line {line + skipped}: {len(row)} cells where the header has {width}: "
                    "check for a missing or extra separator, or an unquoted one within a cell"
                )
            line = reader.line_num + 1
    except csv.Error as broken:
        return TableError(f"{where}, line {line + skipped}: {broken}: check the quotes from this line on")
    return TableError(f"{where} can't be read as CSV: {error}")


def _not_utf8(where: str, data: bytes, error: UnicodeDecodeError, skipped: int) -> TableError:
    line = data.count(b"\n", 0, error.start) + 1
    line += skipped if line > 1 else 0
    return TableError(f"{where}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8: {_ENCODING_HINT}")
