"""Tables from files of any supported format, and from data frames of pandas, polars and pyarrow.

Whether a file is there, and whether its name tells a format, can be said before anything is read. A table in memory, or
on disk if its file is large (`model.tables.formats`), is the same for everyone who reads it.

A data frame is recognised by its attributes, so that neither pandas nor polars is imported.
"""

from __future__ import annotations

import difflib
import gzip
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from errno import ENOSPC
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from murho.model.errors import OptionError, TableError, list_names
from murho.model.tables.cells import as_text
from murho.model.tables.formats import READERS, UNIT, format_of, map_file, with_notes
from murho.model.tables.overrides import AS_IT_IS, FileForm, composed
from murho.model.tables.readings import is_missing_word

STDIN = Path("-")
_PACKED = (".gz", ".zip")
_PARTIAL = 64
"""Bytes of a file that tell its format."""


def require_file(path: Path) -> None:
    """Check that a file can be read and, unless it is packed, that its name or its first bytes tell a format.

    Raises:
        TableError: It does not exist, is a directory, can't be read, or has an unknown format.
    """
    if path == STDIN:
        return
    try:
        with path.open("rb") as file:
            start = file.read(_PARTIAL)
    except FileNotFoundError as error:
        raise TableError(f"{path} does not exist{_alike(path)}") from error
    except IsADirectoryError as error:
        raise TableError(f"{path} is a directory: give a file") from error
    except OSError as error:
        raise TableError(f"{path} can't be read: {error.strerror or error}") from error
    if path.suffix.lower() not in _PACKED:
        _require_format(path, path.name, start)


def _require_format(path: Path, name: str, start: bytes) -> str:
    """Return the format of a file, or of what it packs under another name."""
    found = format_of(name, start)
    if found is None:
        known = ", ".join((*READERS, *_PACKED))
        raise TableError(f"{path}: the extension {path.suffix!r} is not known; use one of {known}")
    return found


def _alike(path: Path) -> str:
    """Return the end of the message about a file that is not there: the name of one that may be meant."""
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, n=1)
    return f": did you mean {path.with_name(close[0])}?" if close else ""


def read_table(path: Path, form: FileForm = AS_IT_IS) -> pa.Table:
    """Read a table in the format that the file's extension names, or else its content; it may be packed.

    - CSV (``.csv``, ``.tsv``, ``.txt``): string columns, null for missing cells (`model.tables.csv_reader`).
    - Parquet (``.parquet``, ``.pq``): columns keep their types.
    - Arrow files and streams (``.arrow``, ``.feather``, ``.arrows``, ``.ipc``): columns keep their types.
    - JSON (``.json``, ``.jsonl``, ``.ndjson``): a list of objects, or one object a line; lines are recognised under
      other names, too. A column that mixes texts and numbers is text.
    - Excel (``.xlsx``): the first sheet with cells, or the one that is asked for.

    Texts may be UTF-8, UTF-16 or Latin-1. Columns without a name that number the rows are dropped, and those of a name
    that was there before get another one. What was done beyond plain reading is noted (`model.tables.formats`).

    Args:
        path: The file; ``-`` is stdin, whose content tells the format, CSV if it is no other.
        form: How to read it, where it does not tell.

    Returns:
        The table. Its column names are unique and non-empty; it may have no rows.

    Raises:
        TableError: The file doesn't exist, can't be read, has an unknown extension, or is damaged.
        OptionError: The form does not fit the file.
    """
    require_file(path)
    try:
        name, data, notes = _content(path)
        found = _require_format(path, name, bytes(data[:_PARTIAL]))
        _check_form(form, found)
        table = READERS[found](data, "stdin" if path == STDIN else str(path), form)
        table = _with_units(without_index(with_notes(_with_own_names(table), notes)))
    except OSError as error:
        full = f" in {tempfile.gettempdir()}: set TMPDIR to a directory with room" if error.errno == ENOSPC else ""
        raise TableError(f"{path} can't be read: {error.strerror or error}{full}") from error
    check_names(table.column_names, f"{path}: ")
    return table


def _check_form(form: FileForm, found: str) -> None:
    """Raise an OptionError if a form is asked for that files of a format can't have."""
    if form.sheet is not None and found != ".xlsx":
        raise OptionError(f"--sheet is for Excel workbooks; this is a {found} file")
    if (form.skip_lines or not form.header) and READERS[found] not in (READERS[".csv"], READERS[".xlsx"]):
        raise OptionError(f"--skip-lines and --no-header are for CSV and Excel files; this is a {found} file")
    if form.encoding is not None and READERS[found] not in (READERS[".csv"], READERS[".json"]):
        raise OptionError(f"--file-encoding is for texts; this is a {found} file")


def _with_own_names(table: pa.Table) -> pa.Table:
    """Return the table with ``x_2`` for a second column ``x``, and notes on such and on names that may be cells."""
    names, renamed, notes = list[str](), list[str](), list[str]()
    given = [*map(composed, table.column_names)]
    for name in given:
        own, number = name, 2
        while name.strip() and own in names:
            own, number = f"{name}_{number}", number + 1
        names.append(own)
        renamed += [] if own == name else [own]
    if renamed:
        notes.append(f"names that were there before get a number: {list_names(renamed, _SHOWN)}")
    pairs = zip(given, table.columns, strict=True)
    cells = [name for name, column in pairs if _may_be_cell(name, _first_cells(column))]
    counted = all(map(str.isdigit, cells)) and cells == sorted(set(cells), key=int)  # as years are
    if len(cells) >= max(2, len(names) / 2) and not counted:
        shown = list_names(cells, _SHOWN)
        notes.append(f"the names look like cells of their columns ({shown}): if they are a row, give --no-header")
    return with_notes(table.rename_columns(names).replace_schema_metadata(table.schema.metadata), notes)


_SHOWN, _LOOKED_AT, _LONGEST_UNIT = 5, 100, 20
_CELL = re.compile(r"-?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?")
_BEGINS_AS_NUMBER = re.compile(r"[-+.$(]?[0-9]")


def _first_cells(column: pa.ChunkedArray) -> list[str]:
    return [str(cell) for cell in column.slice(0, _LOOKED_AT).to_pylist() if cell is not None]


def _may_be_cell(name: str, cells: list[str]) -> bool:
    return bool(cells) and all(map(_CELL.fullmatch, cells)) if _CELL.fullmatch(name) else name in cells


def _with_units(table: pa.Table) -> pa.Table:
    """Return the table without a first row of texts above numbers: the units of the columns, which it has then.

    Fewer columns than these may hold texts in all rows.
    """
    units, texts = dict[str, str](), 0
    first, others = table.slice(0, 1).to_pylist(), table.slice(1)
    for name, text in first[0].items() if first else ():
        if text is None or text == "-":
            continue
        cells = [cell for cell in _first_cells(others.column(name)) if not is_missing_word(cell)]
        if is_missing_word(str(text)) or not cells or _BEGINS_AS_NUMBER.match(str(text)):
            return table
        if all(map(_BEGINS_AS_NUMBER.match, cells)):
            units[name] = text
        else:
            texts += 1
    if len(units) < max(min(2, table.num_columns), texts + 1):
        return table
    fields = [field.with_metadata({UNIT: units.get(field.name, "")[:_LONGEST_UNIT]}) for field in table.schema]
    said = ", ".join(f"{name!r} {unit!r}" for name, unit in list(units.items())[:_SHOWN])
    more = ", …" if len(units) > _SHOWN else ""
    note = f"the first row holds texts above numbers, and is read as their units: {said}{more}"
    return with_notes(others.cast(pa.schema(fields, table.schema.metadata)), [note])


def _content(path: Path) -> tuple[str, pa.Buffer, list[str]]:
    """Return the name of the content of a file, which tells its format, its bytes, and what to tell about them.

    Raises:
        TableError: The file is damaged or locked, or an archive has not exactly one table.
        OSError: The file can't be read.
    """
    if path == STDIN:
        data = sys.stdin.buffer.read()
        return f"stdin{format_of('', data[:_PARTIAL]) or '.csv'}", pa.py_buffer(data), []
    suffix = path.suffix.lower()
    try:
        if suffix == ".gz":
            with gzip.open(path) as packed:
                return path.stem, _unpack(packed), []
        if suffix == ".zip":
            return _member(path)
        with path.open("rb") as file:
            return path.name, map_file(file), []
    except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        kind = "gzip file" if suffix == ".gz" else "zip archive"
        raise TableError(f"{path} is not a whole {kind}: {error}") from error
    except RuntimeError as error:
        raise TableError(f"{path} is locked with a password: unpack it, and give the file within") from error


def _unpack(packed: gzip.GzipFile | IO[bytes]) -> pa.Buffer:
    with tempfile.TemporaryFile() as file:
        shutil.copyfileobj(packed, file)
        return map_file(file)


def _member(path: Path) -> tuple[str, pa.Buffer, list[str]]:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if _HIDDEN.match(name) is None]
        tables = [name for name in names if name.lower().endswith(tuple(READERS))]
        if len(tables) != 1:
            inside = list_names(tables or names) or "it is empty"
            raise TableError(f"{path} holds {len(tables)} tables ({inside}): unpack it, and give the one that is meant")
        with archive.open(tables[0]) as packed:
            data = _unpack(packed)
    beside = f", beside {len(names) - 1} other files" if names[1:] else ""
    return tables[0].rpartition("/")[2], data, [f"read {tables[0]} in the archive{beside}"]


_HIDDEN = re.compile(r"__MACOSX/|(?:.*/)?(?:\.[^/]*)?$", re.DOTALL)
"""Directories of an archive, which end with a slash, and files that begin with a point, or are those of a Mac."""
PANDAS_INDEX = re.compile(r"__index_level_[0-9]+__")
_NAME = "index"


def without_index(table: pa.Table) -> pa.Table:
    """Drop the columns without a name that only number the rows, or are empty, with a note on each.

    The first column without a name is called ``index`` if it holds something else, such as dates or names.
    """
    kept, notes, names = [], [], list(table.column_names)
    for position, (name, column) in enumerate(zip(names, table.columns, strict=True)):
        if not name.strip() and column.null_count == len(column) and position > 0:
            notes.append(f"column {position + 1} has no name and no cells: dropped")
        elif not name.strip() and position == 0 and _whole_numbers(column):
            notes.append(
                "column 1 has no name and a new whole number in each row, as the index of df.to_csv(): dropped"
            )
        elif PANDAS_INDEX.fullmatch(name) and _whole_numbers(column):
            notes.append(f"column {name!r} is the index that pandas writes: dropped")
        else:
            kept.append(position)
            if not name.strip() and position == 0 and _NAME not in names and len(column):
                notes.append(f"column 1 has no name, and is called {_NAME!r}")
                names[0] = _NAME
    if not notes or not kept:
        return table
    return with_notes(table.rename_columns(names).select(kept).replace_schema_metadata(table.schema.metadata), notes)


def _whole_numbers(column: pa.ChunkedArray) -> bool:
    """Whether all cells are there, are whole numbers, and differ."""
    try:
        numbers = pc.cast(column, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return bool(0 < len(column) == pc.count_distinct(numbers).as_py())


def check_names(names: Sequence[str], where: str = "") -> None:
    """Raise a TableError if there are no columns, or one without a name, or two of the same name.

    Args:
        names: Names of the columns.
        where: What the message begins with.
    """
    if not names:
        raise TableError(f"{where}there are no columns")
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise TableError(f"{where}column {position} has no name: name every column")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise TableError(f"{where}{count} columns are named {name!r}: names must differ")


def is_frame(data: object) -> bool:
    """Whether the data are a data frame: named columns, each with its own type."""
    return hasattr(data, "columns") and (hasattr(data, "iloc") or hasattr(data, "__arrow_c_stream__"))


def table_from_frame(frame: Any, names: Sequence[str]) -> pa.Table:
    """Turn a data frame into a table.

    Categories of pandas become text in canonical form. Missing values (NaN, NaT, NA) become missing cells. The index is
    ignored.

    Args:
        frame: A data frame (`is_frame`) of B rows, with one column for each name.
        names: New names of the columns, in column order.

    Returns:
        The table.

    Raises:
        TableError: A name is empty or repeated, or Arrow has no type for the cells of a column; the message names the
            column.
    """
    names = [composed(name) for name in names]
    check_names(names)
    if not hasattr(frame, "iloc"):
        return pa.table(frame).rename_columns(names)
    if hasattr(frame, "modin"):
        frame = frame.modin.to_pandas()
    columns = {}
    for index, name in enumerate(names):
        series = frame.iloc[:, index]
        series = series.sparse.to_dense() if hasattr(series, "sparse") else series
        try:
            columns[name] = _categories(series) if hasattr(series, "cat") else pa.array(series, from_pandas=True)
        except (pa.ArrowException, OverflowError) as error:
            raise TableError(
                f"column {name!r}, of the type {series.dtype}, can't be used: {error}; give numbers, truth values, "
                "dates, texts or categories, one type a column"
            ) from error
    return pa.table(columns)


def _categories(series: Any) -> pa.DictionaryArray:
    """Convert a categorical column of pandas. Its categories may be any objects, such as intervals."""
    codes = np.asarray(series.cat.codes)
    texts = pa.array([as_text(category) for category in series.cat.categories], type=pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), texts)
