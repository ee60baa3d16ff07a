"""Readers of file formats: CSV, JSON lines, Excel workbooks, and text encodings.

Every cell of a CSV file stays text, and missing cells are null. Column kinds are inferred later, from whole columns and
never from a first block. Blanks around cells and names are dropped. The separator is a comma, semicolon, tab or bar.

Where the records of a CSV file end is found in one pass with bounded memory, so that pieces of it can be read by
themselves. A line break ends a record unless it is within a quoted cell. A quote opens a quoted cell only at the
beginning of a cell; within it, two quotes stand for one.

Excel workbooks (``.xlsx``) are read with openpyxl, which the extra ``excel`` installs.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import zipfile
from collections import Counter, deque
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from murho.model.errors import TableError
from murho.model.tables.cells import canonical_category
from murho.model.tables.columns import text_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = [
    "MISSING_TOKENS",
    "column_of_cells",
    "csv_blocks",
    "file_chunks",
    "notes_of",
    "parse_csv",
    "read_excel",
    "read_json",
    "read_json_lines",
    "record_ends",
    "separator_and_names",
    "starts_with_object",
    "to_utf8",
    "with_notes",
]


_KEY = b"murho.notes"


def with_notes(table: pa.Table, notes: Sequence[str]) -> pa.Table:
    """The table with further notes, one sentence each, in its metadata."""
    if not notes:
        return table
    metadata = dict(table.schema.metadata or {})
    metadata[_KEY] = json.dumps([*notes_of(table), *notes]).encode()
    return table.replace_schema_metadata(metadata)


def notes_of(table: pa.Table) -> list[str]:
    """The notes of a table, in the order in which they were made."""
    stored = (table.schema.metadata or {}).get(_KEY)
    return [] if stored is None else [str(note) for note in json.loads(stored)]


_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_BLOCK = 2**20
_SAMPLE = 4096


def to_utf8(data: bytes) -> tuple[bytes, str]:
    """The bytes of a text in UTF-8, and a note on its encoding (empty for UTF-8).

    Without a byte order mark, zeros at every other byte tell UTF-16. What is no UTF-8 is taken for Windows-1252, the
    usual superset of Latin-1, unless it has characters in UTF-8 as well: then a part of it is damaged, and the bytes
    are returned unchanged, for the reader to name the line.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _decoded(data, name)
    sample = data[:_SAMPLE]
    if b"\0" in sample:
        even, odd = sample[::2].count(0), sample[1::2].count(0)
        if max(even, odd) * 4 >= len(sample) and min(even, odd) * 8 <= max(even, odd):
            return _decoded(data, "utf-16-be" if even > odd else "utf-16-le")
        return data, ""
    if _is_utf8(data) or not data.decode("utf-8", "ignore").isascii():
        return data, ""
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.encode(), "the file is not UTF-8: read as Latin-1 (Windows-1252)"


def _decoded(data: bytes, name: str) -> tuple[bytes, str]:
    try:
        return data.decode(name).encode(), f"the file is in {name[:6].upper()}"
    except UnicodeDecodeError:
        return data, ""


def _is_utf8(data: bytes) -> bool:
    """Whether all bytes are UTF-8; a block at a time, because the text would take several times their memory."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(data)
    try:
        for start in range(0, len(data), _BLOCK):
            decoder.decode(view[start : start + _BLOCK])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


CHUNK_BYTES = 2**24
MOST_RECORD_BYTES = 2**26
"""A longer record is taken for a quote that is not closed."""

NEW_LINE, RETURN = 10, 13


def record_ends(
    chunks: Iterable[bytes], separator: str, where: str, *, most_bytes: int = MOST_RECORD_BYTES
) -> Iterator[NDArray[np.int64]]:
    """Yield the offsets behind the records of a text, rising, some thousands at a time.

    Blank lines are no records. The header is the first record.

    Args:
        chunks: The text from its beginning to its end, in parts of any size.
        separator: What separates its cells.
        where: Its name, for messages.
        most_bytes: The most bytes of a record.

    Raises:
        TableError: A record has more bytes.
    """
    mark = re.escape(separator.encode())
    quoted = re.compile(rb"(?:\A|(?<=[\r\n])|(?<=" + mark + rb'))"[^"]*+(?:""[^"]*+)*+("|\Z)')
    rest, begin = b"", 0  # what is read of a record that has not ended, and its offset
    for chunk in chain(chunks, [b""]):
        data = rest + chunk
        last = not chunk
        ends = _ends(data, quoted, last=last)
        if len(ends):
            yield begin + _not_blank(data, ends)
            begin, rest = begin + int(ends[-1]), data[int(ends[-1]) :]
        else:
            rest = data
        if last:
            return
        if len(rest) > most_bytes:
            raise TableError(
                f"{where}, from byte {begin} on: a row takes more than {most_bytes // 2**20} MiB: is a quote not "
                "closed?"
            )


def file_chunks(path: Path, size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the content of a file, so many bytes at a time.

    Raises:
        TableError: It can't be read.
    """
    try:
        with path.open("rb") as file:
            while chunk := file.read(size):
                yield chunk
    except OSError as error:
        raise TableError(f"{path} can't be read: {error.strerror or error}") from error


def _ends(data: bytes, quoted: re.Pattern[bytes], *, last: bool) -> NDArray[np.int64]:
    """Offsets behind the lines that end outside of quoted cells."""
    breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == NEW_LINE)
    if b'"' in data:
        spans = np.array([match.span() for match in quoted.finditer(data)], np.int64).reshape(-1, 2)
        if len(spans) and spans[-1, 1] == len(data) and not last:
            # It may go on in the next chunk.
            breaks = breaks[breaks < spans[-1, 0]]
        before = np.searchsorted(spans[:, 0], breaks) - 1
        inside = (before >= 0) & (breaks < spans[np.maximum(before, 0), 1]) if len(spans) else np.zeros(0, bool)
        breaks = breaks[~inside] if len(spans) else breaks
    ends = breaks + 1
    if last and data and (not len(ends) or ends[-1] < len(data)):
        ends = np.append(ends, len(data))  # the last line has no line break
    return ends.astype(np.int64)


def _not_blank(data: bytes, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ends of lines that hold more than a line break."""
    values = np.frombuffer(data, np.uint8)
    starts = np.concatenate([[0], ends[:-1]])
    first, second = values[starts], values[np.minimum(starts + 1, len(values) - 1)]
    lengths = ends - starts
    blank = ((lengths == 1) & ((first == NEW_LINE) | (first == RETURN))) | (
        (lengths == 2) & (first == RETURN) & (second == NEW_LINE)
    )
    kept: NDArray[np.int64] = ends[~blank]
    return kept


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


def read_json(data: bytes, where: str) -> pa.Table:
    """Read a JSON list of objects, one object per row, or JSON lines under the name of JSON.

    Columns come in the order of their first appearance, and missing keys are missing cells. A column that mixes texts
    with numbers or truth values becomes text. Its kind is then inferred as for a CSV column.

    Args:
        data: The bytes.
        where: Name of their source, for messages.

    Raises:
        TableError: The data have another form; the message names line or row (from 1) and column.
    """
    if starts_with_object(data):
        return read_json_lines(data, where)
    records = _parse_json(data, where)
    if not isinstance(records, list):
        raise TableError(f"{where}: expected a list of objects, one a row, found {_json_type(records)}")
    return _records_table(where, records)


def read_json_lines(data: bytes, where: str) -> pa.Table:
    """Read one JSON object per line; blank lines are skipped. Columns are made as in `read_json`.

    A list of objects under the name of JSON lines is read as one.

    Raises:
        TableError: The data have another form; the message names line or row (from 1) and column.
    """
    if data.removeprefix(_BYTE_ORDER_MARK).lstrip()[:1] == b"[":
        return read_json(data, where)
    lines = enumerate(data.split(b"\n"), start=1)
    return _records_table(
        where, [_parse_json(line, f"{where}, line {number}") for number, line in lines if line.strip()]
    )


def starts_with_object(data: bytes) -> bool:
    """Whether the first line of a text is a whole JSON object, as in JSON lines."""
    start = data.removeprefix(_BYTE_ORDER_MARK).lstrip()
    if start[:1] != b"{":
        return False
    line, _, rest = start.partition(b"\n")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    # A file with one object alone is a table of one row only if it has cells, and not tables, in it.
    whole = not rest.strip() and any(isinstance(cell, dict | list) for cell in record.values())
    return isinstance(record, dict) and not whole


def _parse_json(data: bytes, where: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) != len(pairs):
            repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise TableError(f"{where}: the key {repeated!r} appears twice in one object")
        return record

    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        raise TableError(f"{where}: not UTF-8 text: {error}") from error
    except (ValueError, RecursionError) as error:
        raise TableError(f"{where}: not valid JSON: {error}") from error


def _records_table(where: str, records: list[Any]) -> pa.Table:
    if not records:
        raise TableError(f"{where} has no rows")
    names: dict[str, None] = {}
    for row, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            raise TableError(f"{where}, row {row}: expected an object, found {_json_type(record)}")
        for name, cell in record.items():
            if isinstance(cell, dict | list):
                raise TableError(f"{where}, row {row}, column {name!r}: expected a cell, found {_json_type(cell)}")
            names[name] = None
    if not names:
        raise TableError(f"{where} has no columns: every object is empty")
    return pa.table({name: column_of_cells([record.get(name) for record in records]) for name in names})


def column_of_cells(cells: list[Any]) -> pa.Array:
    """A column of texts, numbers and truth values; text if it mixes texts with others."""
    types = {type(cell) for cell in cells if cell is not None}
    if types <= {bool} or types <= {str}:
        return pa.array(cells)
    if types <= {int, float}:
        try:
            return pa.array(cells, pa.int64() if types == {int} else pa.float64())
        except (pa.ArrowInvalid, OverflowError):
            # What is beyond float64 becomes infinite, and is refused later, with column and row.
            return pa.array([None if cell is None else float(str(cell)) for cell in cells], pa.float64())
    return pa.array([None if cell is None else _as_text(cell) for cell in cells], pa.string())


def _as_text(cell: Any) -> str:
    try:
        return cell if isinstance(cell, str) else canonical_category(cell)
    except ValueError:  # NaN and the infinities
        return str(cell)


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", int: "a number"}
    return names.get(type(value), "null" if value is None else "a number")


HOW_TO_INSTALL = "install it with pip install '.[excel]' in a clone of Murho's repository, or save the sheet as CSV"
_MOST_BYTES = 2**30
_MOST_ROWS = 2**20
"""Excel has no more."""
_MOST_CELLS = 2**25
_ERRORS = frozenset({"#N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"})


def read_excel(data: bytes, where: str) -> pa.Table:
    """Read the first sheet with cells; its first row with cells holds the names. Formulas count as their last values.

    Args:
        data: The bytes of the workbook.
        where: Name of their source, for messages.

    Raises:
        TableError: openpyxl is missing, the data are no workbook or one that is too large, or no sheet has cells.
    """
    try:
        from openpyxl import load_workbook
    except ModuleNotFoundError as error:
        raise TableError(f"{where}: Excel files take the package openpyxl: {HOW_TO_INSTALL}") from error
    title, rows, filled = "", [], 0
    try:
        _check_size(data, where)
        for sheet in load_workbook(io.BytesIO(data), read_only=True, data_only=True).worksheets:
            found = _rows(sheet, where)
            if (first := next(found, None)) is None:
                continue
            filled += 1
            if filled == 1:
                title, rows = sheet.title, [first, *found]
    except (TableError, MemoryError):
        raise
    except Exception as error:  # openpyxl raises whatever the parts of a damaged file cause
        raise TableError(f"{where} is not a whole Excel workbook (.xlsx): {error}") from error
    if not filled:
        raise TableError(f"{where}: no sheet has cells")
    table = _table(rows)
    if filled == 1:
        return table
    return with_notes(table, [f"read the sheet {title!r}, the first of {filled} with cells"])


def _check_size(data: bytes, where: str) -> None:
    """Refuse a workbook that unpacks to too much; no more than it says is unpacked."""
    with zipfile.ZipFile(io.BytesIO(data)) as parts:
        unpacked = sum(part.file_size for part in parts.infolist())
    if unpacked > _MOST_BYTES:
        raise TableError(
            f"{where} unpacks to {unpacked} bytes, more than the {_MOST_BYTES} that are read: save it as CSV"
        )


def _rows(sheet: Any, where: str) -> Iterator[list[Any]]:
    """The rows of a sheet that have cells. What it says of its size, and of gaps in it, can be anything."""
    sheet.reset_dimensions()
    cells = 0
    for count, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        filled = any(cell is not None and str(cell).strip() for cell in row)
        cells += len(row) * filled
        if count > _MOST_ROWS or cells > _MOST_CELLS:
            raise TableError(
                f"{where}: the sheet {sheet.title!r} has more than {_MOST_ROWS} rows or {_MOST_CELLS} cells: "
                "save it as CSV"
            )
        if filled:
            yield list(row)


def _table(rows: list[list[Any]]) -> pa.Table:
    head, *body = rows
    width = max(position + 1 for row in rows for position, cell in enumerate(row) if cell is not None and cell != "")
    names = ["" if name is None else str(name).strip() for name in [*head, *[None] * width][:width]]
    columns = [[_cell(row[position]) if position < len(row) else None for row in body] for position in range(width)]
    return pa.Table.from_arrays([_column(cells) for cells in columns], names=names)


def _cell(cell: Any) -> Any:
    if isinstance(cell, str):
        stripped = cell.strip()
        return None if not stripped or stripped in _ERRORS else stripped
    if isinstance(cell, time):
        return timedelta(hours=cell.hour, minutes=cell.minute, seconds=cell.second, microseconds=cell.microsecond)
    if isinstance(cell, date) and not isinstance(cell, datetime):
        return datetime(cell.year, cell.month, cell.day)
    return cell


def _column(cells: list[Any]) -> pa.Array:
    types = {type(cell) for cell in cells if cell is not None}
    if types and types <= {datetime}:
        return pa.array(cells, pa.timestamp("us"))
    if types and types <= {timedelta}:
        return pa.array(cells, pa.duration("us"))
    return column_of_cells([_plain(cell) for cell in cells])


def _plain(cell: Any) -> Any:
    """A cell of a column with cells of several types: dates and durations as text."""
    if isinstance(cell, datetime):
        return cell.isoformat()
    return str(cell) if isinstance(cell, timedelta) else cell
