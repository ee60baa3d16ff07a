"""Formats of tables in files: a reader for each, from bytes to a table.

A reader takes the bytes of a file, its name, for messages, and its form, and returns a table or raises a `TableError`.
A new format is a reader and a line in `READERS`. What a reader does beyond plain reading it notes in the table.

The bytes of a large file are mapped, not read, and its table is kept in a file without a name, which is mapped too: its
cells take disk instead of memory, and those that are looked at are read anew if memory is short.
"""

from __future__ import annotations

import codecs
import io
import json
import mmap
import os
import re
import tempfile
import warnings
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import IO, Any, TypeAlias

import pyarrow as pa

from murho.model.errors import OptionError, TableError, format_count, list_names
from murho.model.tables.cells import as_text
from murho.model.tables.csv_reader import LINES_OF_SAMPLE, count_titles, csv_rows, read_header
from murho.model.tables.overrides import FileForm

Reader: TypeAlias = Callable[[pa.Buffer, str, FileForm], pa.Table]

_KEY = b"murho.notes"
UNIT = b"unit"
"""Key of a column's unit in the metadata of its field."""


def with_notes(table: pa.Table, notes: Sequence[str]) -> pa.Table:
    """Return the table with further notes, one sentence each, in its metadata."""
    if not notes:
        return table
    metadata = {**(table.schema.metadata or {}), _KEY: "\n".join([*notes_of(table), *notes]).encode()}
    return table.replace_schema_metadata(metadata)


def notes_of(table: pa.Table) -> list[str]:
    """Return the notes of a table, in the order in which they were made."""
    stored: bytes = (table.schema.metadata or {}).get(_KEY, b"")
    return stored.decode().splitlines()


def unit_of(table: pa.Table, name: str) -> str | None:
    """Return the unit that the file gives a column; None if it gives none."""
    unit: bytes = (table.schema.field(name).metadata or {}).get(UNIT, b"")
    return unit.decode() or None


_CONTENT = {
    ".parquet": re.compile(rb"PAR1"),
    ".arrow": re.compile(rb"ARROW1"),
    ".json": re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{\s*\"|\[\s*\{)"),
}
"""How files of these formats begin, whatever their names."""


def format_of(name: str, start: bytes) -> str | None:
    """Return the key in `READERS` for a file; None if neither its content nor its name tells a format.

    Args:
        name: Name of the file, without ``.gz``.
        start: Its first bytes.
    """
    suffix = "." + name.lower().rpartition(".")[2]
    found = next((extension for extension, begin in _CONTENT.items() if begin.match(start)), suffix)
    return found if found in READERS else None


LEAST_BYTES = 2**24
"""Bytes of a file, or of its cells, from which on its table is kept on disk."""


def map_file(file: IO[bytes]) -> pa.Buffer:
    """Return the bytes of an open file, which are read from disk where they are looked at; the file may be closed.

    Raises:
        OSError: It can't be mapped.
    """
    file.flush()
    if not os.fstat(file.fileno()).st_size:
        return pa.py_buffer(b"")
    return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _keep(schema: pa.Schema, rows: Iterable[pa.RecordBatch], size: int) -> pa.Table:
    """Rows as a table: in memory, or on disk if this size is large."""
    if size < LEAST_BYTES:
        return pa.Table.from_batches(rows, schema)
    with tempfile.TemporaryFile() as file:
        with pa.ipc.new_stream(file, schema) as writer:
            for block in rows:
                writer.write_batch(block)
        return pa.ipc.open_stream(map_file(file)).read_all()


def _read_parquet(data: pa.Buffer, where: str, form: FileForm) -> pa.Table:  # noqa: ARG001 - it has one form
    from pyarrow import parquet  # takes a while, and few tables need it

    try:
        file = parquet.ParquetFile(pa.BufferReader(data))
        cells = file.metadata.num_rows * file.metadata.num_columns
        table = _keep(file.schema_arrow, file.iter_batches(), max(data.size, 8 * cells))  # repeated cells take no place
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # of the system, not of Arrow
            raise
        raise TableError(f"{where} is not a whole Parquet file: {error}") from error
    return table


def _read_arrow(data: pa.Buffer, where: str, form: FileForm) -> pa.Table:  # noqa: ARG001
    try:
        try:
            table = pa.ipc.open_file(data).read_all()
        except pa.ArrowInvalid:
            table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{where} is not a whole Arrow file or stream: {error}") from error
    return table


def _read_csv(data: pa.Buffer, where: str, form: FileForm) -> pa.Table:
    text, notes = _to_utf8(data, form.encoding, where)
    lines = bytes(text[:_BLOCK]).splitlines(keepends=True)[: form.skip_lines]
    text, short = text[sum(map(len, lines)) :], list[int]()
    header = read_header(text, where)
    if len(header.names) == 1 and (parted := _split_by_blanks(text)):
        text, header = parted, read_header(parted, where)
        notes.append("blanks part the columns")
    if not form.header:
        header = header._replace(names=name_columns(len(header.names)), first=1, lines=0, size=0)
    if header.first > 1:
        notes.append(f"the table begins at line {form.skip_lines + header.first}")
    rows = csv_rows(text, where, header, skipped=form.skip_lines, short=short)
    try:
        table = _keep(header.schema, rows, text.size)
    except TableError as error:
        raise TableError(f"{error}; if other lines come before the header line, give --skip-lines") from error
    if short:
        fewer = format_count(len(short), "line")
        notes.append(f"{fewer} with fewer cells than the header (first line {short[0]}): the last cells are missing")
    return with_notes(table, notes)


def _split_by_blanks(text: pa.Buffer) -> pa.Buffer | None:
    """Return the text with a tab for the blanks between words, or None if not all lines have as many words, or one.

    The first line may have one less, as R writes it. A quoted text is a word.
    """
    lines = filter(None, (re.findall(rb'(?:"[^"]*"|[^\s"])+', line) for line in text.to_pybytes().splitlines()))
    first = next(lines, [])
    if len(first) < 2:
        return None
    others = list(lines)
    widths = set(map(len, others))
    if len(widths) != 1 or len(first) not in (max(widths), max(widths) - 1):
        return None
    return pa.py_buffer(b"\n".join(map(b"\t".join, [first, *others])))


def name_columns(count: int) -> list[str]:
    """Return names for unnamed columns, ``x0``, ``x1`` and so on, as in scikit-learn."""
    return [f"x{index}" for index in range(count)]


def _read_json(data: pa.Buffer, where: str, form: FileForm) -> pa.Table:
    """Return the table of JSON objects, one a row: a list of them, or one a line; blank lines are skipped.

    Columns come in the order of their first appearance, and missing keys are missing cells. A column that mixes texts
    with numbers or truth values becomes text. Its kind is then inferred as for a CSV column. Objects and lists within
    become cells that can't be used, as in Parquet files.

    Raises:
        TableError: The data have another form; the message names line or row (from 1) and column.
    """
    text, notes = _to_utf8(data, form.encoding, where)
    whole = text.to_pybytes().decode("utf-8-sig")
    try:
        records = json.loads(whole)
    except (ValueError, RecursionError):  # several objects, or a mistake
        numbered = enumerate(whole.split("\n"), start=1)
        records = [_parse_json(line, f"{where}, line {number}") for number, line in numbered if line.strip()]
    if isinstance(records, dict):
        records, note = _records_of(records)
        notes += [note] if note else []
    if not isinstance(records, list):
        raise TableError(f"{where}: expected a list of objects, one a row, found {records!r:.40}")
    if not records:
        raise TableError(f"{where} has no rows")
    names: dict[str, None] = {}
    for row, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            raise TableError(f"{where}, row {row}: expected an object, found {record!r:.40}")
        names |= dict.fromkeys(record)
    if not names:
        raise TableError(f"{where} has no columns: every object is empty")
    table = pa.table({name: column_of_cells([record.get(name) for record in records]) for name in names})
    return with_notes(table, notes)


def _records_of(whole: dict[str, Any]) -> tuple[list[Any], str]:
    """Return the rows in a JSON object (of ``df.to_json()``, a list or one row), and a note on its form."""
    kinds = {type(value) for value in whole.values()}
    if kinds == {dict}:  # column → row → cell
        rows = dict.fromkeys(row for column in whole.values() for row in column)
        cells = [{name: column.get(row) for name, column in whole.items()} for row in rows]
        return cells, "the file has an object a column, and is read as the columns of a data frame"
    lists = [name for name, value in whole.items() if isinstance(value, list) and value]
    if len(lists) == 1 and all(isinstance(row, dict) for row in whole[lists[0]]):
        return whole[lists[0]], f"the rows are the list {lists[0]!r}"
    if kinds == {list}:
        names, table = list(whole), list(zip_longest(*whole.values()))
        if whole.keys() >= {"columns", "data"} and all(isinstance(row, list) for row in whole["data"]):
            names, table = whole["columns"], whole["data"]
        return [dict(zip(names, row, strict=False)) for row in table], "the file has lists, and is read as columns"
    return [whole], ""


def _parse_json(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TableError(f"{where}: not valid JSON: {error}") from error


def column_of_cells(cells: list[Any]) -> pa.Array:
    """Return a column of cells of one type, or of numbers; text if they are of several types."""
    if not {float, bool} <= {type(cell) for cell in cells}:  # Arrow reads true among numbers as 1
        try:
            return pa.array(cells)
        except (pa.ArrowException, OverflowError):
            pass
    return pa.array([None if cell is None else as_text(cell) for cell in cells], pa.string())


_BLOCK = 2**20
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def _to_utf8(data: pa.Buffer, encoding: str | None, where: str) -> tuple[pa.Buffer, list[str]]:
    """Return the bytes of a text in UTF-8, and a note on its encoding, unless that is UTF-8 or given.

    What has no byte order mark and is no UTF-8 is taken for Windows-1252, the usual superset of Latin-1, unless most of
    its characters beyond ASCII are UTF-8: then the bytes that are not are damaged, and read as U+FFFD.
    """
    start = bytes(data[:4])
    marked = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
    if known := encoding or marked:
        whole, notes = data.to_pybytes(), [] if encoding else [f"the file is in {known.upper()}"]
        try:
            return pa.py_buffer(whole.decode(known).encode()), notes
        except LookupError as error:
            raise OptionError(f"--file-encoding {encoding}: there is no such encoding") from error
        except UnicodeDecodeError as error:
            line = whole.count(b"\n", 0, error.start) + 1
            raise TableError(f"{where}, line {line}: it is not text in {known}: {error.reason}") from error
    blocks = (bytes(data[start : start + _BLOCK]) for start in range(0, data.size, _BLOCK))
    try:  # a block at a time, because the text would take several times the memory of the bytes
        deque(codecs.iterdecode(blocks, "utf-8"), maxlen=0)
    except UnicodeDecodeError:
        whole = data.to_pybytes()
        text = whole.decode(errors="replace")
        if (broken := text.count("\ufffd")) > len(_BEYOND_ASCII.findall(text)):
            names = "cp1252", "latin-1"  # the former lacks some bytes
            latin = next(each for each in names if whole.decode(each, "ignore").encode(each) == whole)
            text, note = whole.decode(latin), _READ_AS_LATIN
        else:
            line = text.count("\n", 0, text.index("\ufffd")) + 1
            bytes_read = format_count(broken, "byte")
            note = f"no UTF-8 in {bytes_read} (first line {line}): read as '\ufffd', or give --file-encoding"
        return pa.py_buffer(text.encode()), [note]
    return data, []


_READ_AS_LATIN = (
    "the file is not UTF-8: read as Latin-1 (Windows-1252); if letters look wrong, give --file-encoding, such as "
    "cp1250 for Polish or cp1251 for Russian"
)
_BEYOND_ASCII = re.compile("[^\0-\x7f\ufffd]")


HOW_TO_INSTALL = "install it with pip install '.[excel]' in a clone of Murho's repository, or save the sheet as CSV"
_MOST_BYTES = 2**30
_MOST_ROWS = 2**20
"""Excel has no more."""
_MOST_CELLS = 2**25
_ERRORS = frozenset({"", "#N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"})


def _read_excel(data: pa.Buffer, where: str, form: FileForm) -> pa.Table:
    """Return the sheet of the form, else the first with cells; its first row with cells holds the names.

    Formulas count as their last values.

    Raises:
        TableError: openpyxl is missing, the data are no workbook or one that is too large, or no sheet has cells.
    """
    try:
        from openpyxl import load_workbook
    except ModuleNotFoundError as error:
        raise TableError(f"{where}: Excel files take the package openpyxl: {HOW_TO_INSTALL}") from error
    try:
        book = io.BytesIO(data)
        _check_size(book, where)
        filled: list[tuple[str, list[tuple[int, list[Any]]]]] = []
        with warnings.catch_warnings(action="ignore"):  # of parts that no cell needs
            for sheet in load_workbook(book, read_only=True, data_only=True).worksheets:
                rows = (row for row in _rows(sheet, where) if row[0] > form.skip_lines)
                if first := next(rows, None):
                    wanted = sheet.title == form.sheet if form.sheet else not filled
                    filled.append((sheet.title, [first, *rows] if wanted else []))
    except (TableError, MemoryError):
        raise
    except Exception as error:  # openpyxl raises whatever the parts of a damaged or unusual file cause
        raise TableError(
            f"{where} is not a whole Excel workbook (.xlsx), or not one that openpyxl reads: {error}: save it with "
            "another program, or as CSV"
        ) from error
    if not filled:
        raise TableError(f"{where}: no sheet has cells")
    titles = list_names([title for title, _ in filled], 20)
    found = next((rows for _, rows in filled if rows), None)
    if found is None:
        raise OptionError(f"--sheet {form.sheet}: {where} has no such sheet with cells; there are {titles}")
    before = count_titles([row for _, row in found[:LINES_OF_SAMPLE]]) if form.header else 0
    columns = [list(cells) for cells in zip_longest(*(row for _, row in found[before:]))]
    while not any(cell is not None for cell in columns[-1]):
        columns.pop()
    names = name_columns(len(columns))
    if form.header:
        names = ["" if (name := cells.pop(0)) is None else str(name) for cells in columns]
    notes = [f"the table begins at line {found[before][0]}"] if before else []
    if len(filled) > 1 and not form.sheet:
        notes.append(f"read the first of {len(filled)} sheets with cells: {titles}; --sheet takes another")
    return with_notes(pa.Table.from_arrays([*map(column_of_cells, columns)], names=names), notes)


def _check_size(book: io.BytesIO, where: str) -> None:
    """Refuse a workbook that unpacks to too much; no more than it says is unpacked."""
    with zipfile.ZipFile(book) as parts:
        unpacked = sum(part.file_size for part in parts.infolist())
    if unpacked > _MOST_BYTES:
        raise TableError(
            f"{where} unpacks to {unpacked} bytes, more than the {_MOST_BYTES} that are read: save it as CSV"
        )


def _rows(sheet: Any, where: str) -> Iterator[tuple[int, list[Any]]]:
    """Return the rows of a sheet that have cells, each with its number. The size that a sheet states can be wrong."""
    sheet.reset_dimensions()
    cells = 0
    for count, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        values = [cell.strip() if isinstance(cell, str) else cell for cell in row]
        values = [None if isinstance(cell, str) and cell in _ERRORS else cell for cell in values]
        filled = any(cell is not None for cell in values)
        cells += len(row) * filled
        if count > _MOST_ROWS or cells > _MOST_CELLS:
            raise TableError(
                f"{where}: the sheet {sheet.title!r} has more than {_MOST_ROWS} rows or {_MOST_CELLS} cells: "
                "save it as CSV"
            )
        if filled:
            yield count, values


READERS: dict[str, Reader] = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), _read_csv),
    **dict.fromkeys((".parquet", ".pq"), _read_parquet),
    **dict.fromkeys((".arrow", ".feather", ".arrows", ".ipc"), _read_arrow),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _read_json),
    ".xlsx": _read_excel,
}
"""Extension → reader. Each file may be packed, as ``.csv.gz`` or ``.zip``."""
