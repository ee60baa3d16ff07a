"""CSV files: every cell stays text, and empty cells are null. Words such as ``NA`` stay, for whoever types the column.

Kinds of columns are inferred later, from whole columns and never from a first block. Blanks around cells and names are
dropped. The separator is a comma, semicolon, tab or bar.
"""

from __future__ import annotations

import csv
import io
import time
import weakref
from contextlib import suppress
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.csv

from murho.model.errors import TableError
from murho.model.tables.columns import trimmed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SEPARATORS = (",", ";", "\t", "|")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ENCODING_HINT = "save it as UTF-8"
_START_BYTES = 2**20
_LONGEST_LINE = 2**22
_BLOCK_BYTES = 2**24
_RELEASE_SECONDS = 2.0
"""The longest wait for Arrow's threads to let go of what they read, which takes them less than a millisecond."""
_END = "\x04"
"""First cell of a row that is put behind the last one: a quote that isn't closed takes it in."""


class Header(NamedTuple):
    """What the first lines of a file tell.

    Attributes:
        separator: What separates the cells.
        names: Names of the columns, without blanks around them.
        lines: Lines before the rows.
    """

    separator: str
    names: list[str]
    lines: int


def parse_csv(data: bytes, where: str, header: Header | None = None) -> pa.Table:
    """The table in the bytes of a CSV file with a header line: string columns, null for empty cells.

    Args:
        data: The bytes, with a header line.
        where: Name of their source, for messages.
        header: The header, if it is known.

    Raises:
        TableError: The data are empty, aren't UTF-8, have ragged lines or a quote that isn't closed, or the header
            can't be read.
    """
    names, rows = csv_rows(data, where, header)
    schema = pa.schema([(str(place), pa.string()) for place in range(len(names))])
    return pa.Table.from_batches(rows, schema).rename_columns(names)


def csv_rows(
    data: bytes | memoryview | pa.Buffer,
    where: str,
    header: Header | None = None,
    *,
    skipped: int = 0,
    block_bytes: int = _BLOCK_BYTES,
) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """The names of the columns, and the rows, a block at a time; there the columns are called by their numbers.

    Takes and raises what `parse_csv` does. It also takes the lines of the source before the data, for messages, and the
    most bytes of a block, which a row fits into.
    """
    text = _without_mark(pa.py_buffer(data))
    header = header or read_header(text, where)
    return header.names, _rows(text, where, header, skipped, block_bytes)


def _without_mark(text: pa.Buffer) -> pa.Buffer:
    return text[len(_BYTE_ORDER_MARK) :] if bytes(text[:3]) == _BYTE_ORDER_MARK else text


def _rows(text: pa.Buffer, where: str, header: Header, skipped: int, block_bytes: int) -> Iterator[pa.RecordBatch]:
    names = [str(place) for place in range(len(header.names))]
    last = header.separator.join([_END, *[""] * (len(names) - 1)])
    lent = list[weakref.ref[object]]()
    source: _Blocks | None = _Blocks(text, f"\n{last}\n".encode(), lent)
    reader: pa.csv.CSVStreamingReader | None = None
    try:
        reader = pa.csv.open_csv(
            source,
            # One thread keeps the rows in order and the errors reproducible.
            read_options=pa.csv.ReadOptions(
                use_threads=False, block_size=block_bytes, column_names=names, skip_rows_after_names=header.lines
            ),
            parse_options=pa.csv.ParseOptions(delimiter=header.separator, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=False,
            ),
        )
        for block, following in pairwise(chain(reader, [None])):
            count = block.num_rows - (following is None)
            if following is None and block.column(0)[count].as_py() != _END:
                raise pa.ArrowInvalid("a quote isn't closed")
            columns = [trimmed(column) for column in block.slice(0, count).columns]
            yield pa.record_batch(columns, names=block.schema.names)
    except MemoryError:  # Arrow's is an ArrowException, too
        raise
    except (pa.ArrowException, UnicodeDecodeError) as error:
        if "launch worker thread" in str(error):
            raise MemoryError from error
        if "straddl" in str(error):
            raise TableError(
                f"{where}: a row takes more than {block_bytes >> 10} KiB: is a quote not closed?"
            ) from error
        raise _diagnosis(where, text, header, error, skipped) from error
    finally:
        # A thread of Arrow's takes the interpreter's lock to let go of them, and aborts if the program ends meanwhile.
        source = reader = None
        end = time.monotonic() + _RELEASE_SECONDS
        while any(each() is not None for each in lent) and time.monotonic() < end:
            time.sleep(0.0002)


class _Blocks(io.RawIOBase):
    """A text in blocks that do not end between CR and LF: there Arrow would lose the LF, even in a quoted cell.

    Args:
        text: The text.
        end: What comes after it.
        lent: Takes a reference to this object and to each block, which live as long as threads of Arrow's have them.
    """

    def __init__(self, text: pa.Buffer, end: bytes, lent: list[weakref.ref[object]]) -> None:
        self._text, self._kept, self._end, self._lent = pa.BufferReader(text), b"", end, lent
        lent.append(weakref.ref(self))

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> memoryview:  # bytes have no weak references
        block: bytes = self._kept + self._text.read(max(1, size - len(self._kept) - len(self._end)))
        if self._text.tell() == self._text.size():
            block, self._end = block + self._end, b""
        cut = len(block) > 1 and block.endswith(b"\r")
        self._kept = b"\r" if cut else b""
        lent = memoryview(block[:-1] if cut else block)
        self._lent.append(weakref.ref(lent))
        return lent


def read_header(data: bytes | pa.Buffer, where: str) -> Header:
    """Read the first lines of a CSV file.

    The separator is the one that splits them into equal numbers of cells, and into the most cells.

    Args:
        data: The file from its beginning to the end of some line, or all of it.
        where: Its name, for messages.

    Raises:
        TableError: The file is empty or no text in UTF-8, or its header line can't be read.
    """
    data = _without_mark(pa.py_buffer(data))
    sample = bytes(data[:_START_BYTES])
    if not sample.strip():
        raise TableError(f"{where} is empty: expected a header line with the column names, then one line a row")
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in sample[:4096]:
        raise TableError(f"{where} is not UTF-8 text: {_ENCODING_HINT}")
    if len(sample) < data.size:
        # The sample ends with a whole line: a cut line would look ragged.
        sample = sample[: max(sample.rfind(b"\n"), sample.rfind(b"\r")) + 1] or data.to_pybytes()
    try:
        text = sample.decode()
    except UnicodeDecodeError as error:
        raise _not_utf8(where, sample.count(b"\n", 0, error.start) + 1, error) from error
    best: tuple[bool, int, str, list[str]] = (False, 0, "", [])
    for separator in _SEPARATORS:
        rows: list[list[str]] = []
        with suppress(csv.Error):  # such as a cell that is too long, but for this reader alone
            rows.extend(islice(filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=separator)), 20))
        agree = len({len(row) for row in rows}) == 1 < len(rows[0])
        if rows and (agree, len(rows[0])) > best[:2]:
            best = (agree, len(rows[0]), separator, [name.strip() for name in rows[0]])
    if not best[1]:
        raise TableError(f"{where}: the header line can't be read as CSV: check its quotes")
    blank = text[: len(text) - len(text.lstrip("\r\n"))].replace("\r\n", "\n")
    return Header(*best[2:], len(blank) + 1)


def _diagnosis(where: str, text: pa.Buffer, header: Header, error: Exception, skipped: int) -> TableError:
    """Find the line on which the fast reader failed, with a slower reader that counts lines."""
    lines = _short(line.decode() for line in io.BytesIO(text))
    reader = csv.reader(lines, delimiter=header.separator, strict=True)
    line, width = 1, len(header.names)
    try:
        for row in reader:
            if row and len(row) != width:
                return TableError(
                    f"{where}, line {line + skipped}: {len(row)} cells where the header has {width}: "
                    "check for a missing or extra separator, or an unquoted one within a cell"
                )
            line = reader.line_num + 1
    except UnicodeDecodeError as decoding:
        return _not_utf8(where, reader.line_num + 1 + skipped, decoding)
    except csv.Error as broken:
        said = "a quote opens a cell there and isn't closed" if "unexpected end" in str(broken) else str(broken)
        return TableError(f"{where}, line {line + skipped}: {said}: check the quotes from this line on")
    return TableError(f"{where} can't be read as CSV: {str(error)[:200]}")


def _short(lines: Iterable[str]) -> Iterator[str]:
    """Lines that may be taken apart: the cells of a line of many megabytes would take many times its memory."""
    for line in lines:
        if len(line) > _LONGEST_LINE:
            raise csv.Error(f"it has more than {_LONGEST_LINE} characters")
        yield line


def _not_utf8(where: str, line: int, error: UnicodeDecodeError) -> TableError:
    byte = error.object[error.start]
    return TableError(f"{where}, line {line}: byte 0x{byte:02x} is not UTF-8: {_ENCODING_HINT}")
