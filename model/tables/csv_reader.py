"""CSV files: every cell stays text, and empty cells are null. Words such as ``NA`` stay, for whoever types the column.

Kinds of columns are inferred later, from whole columns and never from a first block. Blanks around cells and names are
dropped. The separator is a comma, semicolon, tab or bar.
"""

from __future__ import annotations

import csv
import io
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice, pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv

from murho.model.errors import TableError
from murho.model.tables.columns import text_array, trim
from murho.model.tables.overrides import composed

_SEPARATORS = (",", ";", "\t", "|")
_ENCODING_HINT = "save it as UTF-8"
_NUL = "it has a byte 0, as no text has: remove it, or give --file-encoding utf-16 if the file is UTF-16"
LINES_OF_SAMPLE, _ROWS_OF_BLOCK = 20, 8_192
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
        first: Number of the line with the names, from 1: titles, ``sep=;`` and blank lines may come before it.
        lines: Lines before the rows.
        size: Bytes before the rows.
    """

    separator: str
    names: list[str]
    first: int
    lines: int
    size: int

    @property
    def schema(self) -> pa.Schema:
        """Columns of texts with these names."""
        return pa.schema([(name, pa.string()) for name in self.names])


def parse_csv(data: bytes, where: str, header: Header | None = None) -> pa.Table:
    """Return the table in the bytes of a CSV file with a header line: string columns, null for empty cells.

    Args:
        data: The bytes, with a header line.
        where: Name of their source, for messages.
        header: The header, if it is known.

    Raises:
        TableError: The data are empty, aren't UTF-8, have ragged lines or a quote that isn't closed, or the header
            can't be read.
    """
    header = header or read_header(data, where)
    return pa.Table.from_batches(csv_rows(data, where, header), header.schema)


def csv_rows(
    data: bytes | memoryview | pa.Buffer,
    where: str,
    header: Header,
    *,
    skipped: int = 0,
    short: list[int] | None = None,
    block_bytes: int = _BLOCK_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Return the rows, a block at a time.

    Takes and raises what `parse_csv` does. It also takes the lines of the source before the data, for messages, the
    most bytes of a block, which a row fits into, and a list that gets the numbers of the lines with fewer cells than
    the header: their last cells are empty. Without the list they are refused.
    """
    text, skipped = pa.py_buffer(data)[header.size :], skipped + header.lines
    names = [str(place) for place in range(len(header.names))]
    last = header.separator.join([_END, *[""] * (len(names) - 1)])
    lent = list[weakref.ref[object]]()
    source: _Blocks | None = _Blocks(text, f"\n{last}\n".encode(), lent)
    reader: pa.csv.CSVStreamingReader | None = None
    read = 0
    try:
        reader = pa.csv.open_csv(
            source,
            # One thread keeps the rows in order and the errors reproducible.
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=block_bytes, column_names=names),
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
            columns = [trim(column) for column in block.slice(0, count).columns]
            read += count
            yield pa.record_batch(columns, header.schema)
    except MemoryError:  # Arrow's is an ArrowException, too
        raise
    except (pa.ArrowException, UnicodeDecodeError) as error:
        if "launch worker thread" in str(error):
            raise MemoryError from error
        if "straddl" in str(error):
            raise TableError(
                f"{where}: a row takes more than {block_bytes >> 10} KiB: is a quote not closed?"
            ) from error
    else:
        return
    finally:
        # A thread of Arrow's takes the interpreter's lock to let go of them, and aborts if the program ends meanwhile.
        source = reader = None
        end = time.monotonic() + _RELEASE_SECONDS
        while any(each() is not None for each in lent) and time.monotonic() < end:
            time.sleep(0.0002)
    rows = islice(_rows_by_line(text, where, header, skipped, short), read, None)
    while part := list(islice(rows, _ROWS_OF_BLOCK)):
        yield pa.record_batch([trim(text_array(cells)) for cells in zip(*part, strict=True)], header.schema)


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

    The separator is the one that splits them into equal numbers of cells, after the fewest titles, and into the most
    cells.

    Args:
        data: The file from its beginning to the end of some line, or all of it.
        where: Its name, for messages.

    Raises:
        TableError: The file is empty or no text in UTF-8, or its header line can't be read.
    """
    sample = bytes(data[:_START_BYTES])
    if len(sample) < len(data):
        # The sample ends with a whole line: a cut line would look ragged.
        sample = sample[: max(sample.rfind(b"\n"), sample.rfind(b"\r")) + 1] or bytes(data)
    try:
        text = sample.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_utf8(where, sample.count(b"\n", 0, error.start) + 1, error) from error
    if not text.strip():
        raise TableError(f"{where} is empty: expected a header line with the column names, then one line a row")
    if "\0" in text:
        raise TableError(f"{where}, line {text.count(chr(10), 0, text.index(chr(0))) + 1}: {_NUL}")
    lines = list(io.StringIO(text, newline=""))
    best, found = (False, 0, 0), Header("", [], 0, 0, 0)
    for separator in _SEPARATORS:
        reader = csv.reader(lines, delimiter=separator)
        rows: list[tuple[int, list[str]]] = []
        with suppress(csv.Error):  # such as a cell that is too long, but for this reader alone
            rows.extend(islice(((reader.line_num, row) for row in reader if row), LINES_OF_SAMPLE))
        titles = count_titles([row for _, row in rows])
        rows = rows[titles:]
        if not rows:
            continue
        end, names = rows[0]
        if separator != "," and {len(row) for _, row in rows[1:]} == {len(names) + 1} and any(rows[1][1][-1:]):
            names.insert(0, "")  # R writes no name above the names of the rows
        widths = sorted(len(row) for _, row in rows)
        agree = widths[0] == widths[-1] > 1
        rank = agree, -titles * agree, widths[len(widths) // 2]  # commas within texts may part all lines but the first
        if rank > best:
            first, size = end - "".join(names).count("\n"), len(sample) - len("".join(lines[end:]).encode())
            best, found = rank, Header(separator, [composed(name.strip()) for name in names], first, end, size)
    if not found.names:
        raise TableError(f"{where}: the header line can't be read as CSV: check its quotes")
    return found


def count_titles(rows: Sequence[Sequence[object]]) -> int:
    """How many of the first rows of a table are titles: they end before the middle of most rows.

    Args:
        rows: Some rows; a cell that is None or blank is empty.
    """
    ends = [
        max((place for place, cell in enumerate(row, 1) if cell is not None and str(cell).strip()), default=0)
        for row in rows
    ]
    usual = sorted(ends)[len(ends) // 2] if ends else 0
    return next((place for place, end in enumerate(ends) if 2 * end > usual), 0)


def _rows_by_line(
    text: pa.Buffer, where: str, header: Header, skipped: int, short: list[int] | None
) -> Iterator[list[str]]:
    """Return the rows by a slower reader, which counts lines and fills up short ones."""
    reader = csv.reader(
        _short(line.decode("utf-8-sig") for line in io.BytesIO(text)), delimiter=header.separator, strict=True
    )
    line, width = skipped + 1, len(header.names)
    try:
        for row in reader:
            if short is not None and 0 < len(row) < width:
                short.append(line)
            elif row and len(row) != width and (len(row) < width or any(map(str.strip, row[width:]))):
                raise TableError(
                    f"{where}, line {line}: {len(row)} cells where the header has {width}: "
                    "check for a missing or extra separator, or an unquoted one within a cell"
                )
            if row:
                yield [*row, *[""] * width][:width]
            line = skipped + reader.line_num + 1
    except UnicodeDecodeError as decoding:
        raise _not_utf8(where, skipped + reader.line_num + 1, decoding) from decoding
    except csv.Error as broken:
        said = "a quote opens a cell there and isn't closed" if "unexpected end" in str(broken) else str(broken)
        raise TableError(f"{where}, line {line}: {said}: check the quotes from this line on") from broken


def _short(lines: Iterable[str]) -> Iterator[str]:
    """Lines that may be taken apart: the cells of a line of many megabytes would take many times its memory."""
    for line in lines:
        if len(line) > _LONGEST_LINE:
            raise csv.Error(f"it has more than {_LONGEST_LINE} characters")
        yield line


def _not_utf8(where: str, line: int, error: UnicodeDecodeError) -> TableError:
    byte = error.object[error.start]
    return TableError(f"{where}, line {line}: byte 0x{byte:02x} is not UTF-8: {_ENCODING_HINT}")
