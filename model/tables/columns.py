"""Conversion of one Arrow column to a canonical numpy column; errors name the first cell that does not fit.

`model.tables.schema` describes canonical columns. Each distinct cell is parsed once, so that a column of a million rows
needs no Python loop over its rows.

Arguments of `pyarrow.compute`, and numbers from it, are made from buffers here: `pyarrow.scalar`, `pyarrow.array`,
``to_numpy`` and Python values import pandas where it is installed, which takes more than a second.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from murho.model.errors import TableError
from murho.model.runtime import give_back
from murho.model.tables.cells import (
    LONGEST_TEXT,
    canonical_category,
    explain_long_text,
    parse_boolean,
    parse_date,
    parse_number,
)
from murho.model.tables.readings import NumberReading
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Sized

    from murho.model.tables.readings import Reading

__all__ = [
    "EMPTY_TEXT",
    "NO_NUMBER",
    "NO_TEXT",
    "CellType",
    "Distinct",
    "canonical_cells",
    "canonical_column",
    "cell_type",
    "distinct",
    "float_array",
    "floats",
    "holds_cells",
    "holds_durations",
    "integers",
    "is_missing",
    "list_array",
    "number_array",
    "plain",
    "release_memory",
    "rows_of",
    "text_array",
    "text_bytes",
]


def text_array(texts: Sequence[str | None]) -> pa.StringArray:
    """Texts as an Arrow array, ``[len(texts)]``; None is a missing one."""
    encoded = [b"" if text is None else text.encode() for text in texts]
    buffers = [_present(texts), pa.py_buffer(_ends(encoded)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def list_array(lists: Sequence[Sequence[str] | None]) -> pa.ListArray:
    """Lists of texts as an Arrow array, ``[len(lists)]``; None is a missing one."""
    given = [[] if texts is None else texts for texts in lists]
    buffers = [_present(lists), pa.py_buffer(_ends(given))]
    children = [text_array(list(chain.from_iterable(given)))]
    return pa.Array.from_buffers(pa.list_(pa.string()), len(lists), buffers, children=children)


def number_array(numbers: npt.NDArray[Any]) -> pa.Array:
    """Numbers ``[B]`` as an Arrow array of their type, none of them missing."""
    data = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, data])


def _ends(parts: Sequence[Sized]) -> array[int]:
    return array("i", accumulate((len(part) for part in parts), initial=0))


def _present(cells: Sequence[object]) -> pa.Buffer | None:
    """The bitmap of the cells that are not missing; None if all are there."""
    present = np.fromiter((cell is not None for cell in cells), np.bool_, len(cells))
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


NO_TEXT = pa.nulls(1, pa.large_string())[0]
NO_NUMBER = pa.nulls(1, pa.float64())[0]
EMPTY_TEXT = text_array([""]).cast(pa.large_string())[0]
_MINUS_ONE = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(array("q", [-1]))])[0]
_NAN = pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(array("d", [float("nan")]))])[0]


def floats(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.float64]:
    """A column of float64 as numpy has it, ``[B]``, NaN where a cell is missing."""
    return _numbers(pc.fill_null(column, _NAN) if column.null_count else column, np.dtype(np.float64))


def integers(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.int64]:
    """A column of int64 as numpy has it, ``[B]``, -1 where a cell is missing."""
    return _numbers(pc.fill_null(column, _MINUS_ONE) if column.null_count else column, np.dtype(np.int64))


def float_array(numbers: npt.NDArray[np.float64]) -> pa.DoubleArray:
    """Numbers ``[B]`` as an Arrow array; NaN is a missing value."""
    missing = np.isnan(numbers)
    present = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(
        pa.float64(), len(numbers), [present, pa.py_buffer(np.ascontiguousarray(numbers))], int(missing.sum())
    )


def rows_of(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """Rows of a table, in the given order; the table itself, not a copy, where all rows are asked for in order.

    Args:
        table: The table.
        rows: Indices of rows, ``[B]``.
    """
    if len(rows) == table.num_rows and bool((rows == np.arange(table.num_rows)).all()):
        return table
    numbers = np.ascontiguousarray(rows, dtype=np.int64)
    return table.take(pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)]))


def release_memory() -> None:
    """Give the memory of tables that no longer exist back to the system."""
    pa.default_memory_pool().release_unused()
    give_back()


def _numbers(column: pa.ChunkedArray | pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype, chunk.offset + len(chunk))[chunk.offset :]
        for chunk in chunks
        if len(chunk)
    ]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype)


_MICROSECONDS_PER_DAY = 86_400e6
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


class CellType(Enum):
    """Type of the cells of an Arrow column as stored, before any inference."""

    EMPTY = "empty"
    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    DATE = "date"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Distinct:
    """The distinct cells of a column.

    Attributes:
        values: The distinct cells without missing ones, in the order of their first rows.
        codes: Index of each row's cell in ``values``, ``[B]``; -1 for a missing cell.
    """

    values: list[Any]
    codes: npt.NDArray[np.int64]

    def counts(self) -> npt.NDArray[np.int64]:
        """Return the number of rows with each of ``values``."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values)).astype(np.int64)

    def first_row(self, value: int) -> int:
        """Return the row number, from 1, of the first row with the cell ``values[value]``."""
        return int(np.argmax(self.codes == value)) + 1

    def spread(self, results: list[Any], missing: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return the result of each row's cell, ``[B]``, or ``missing`` for a missing cell."""
        # Code -1 selects the last entry.
        lookup = np.empty(len(results) + 1, dtype=dtype)
        lookup[:-1] = results
        lookup[-1] = missing
        return lookup[self.codes]


def plain(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return the column as text, numbers, truth values or timestamps; columns of other types are unchanged.

    Blank text and NaN become missing cells.

    Raises:
        TableError: A date lies beyond the years 1 to 9999.
    """
    if pa.types.is_dictionary(column.type):
        column = _decoded(column)
    kind = column.type
    if _is_text(kind):
        # A chunk at a time: each step makes a copy.
        return pa.chunked_array([_trimmed(chunk) for chunk in column.chunks], pa.large_string())
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        column = pc.cast(column, pa.float64())
        return pc.if_else(pc.is_nan(column), NO_NUMBER, column)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _microseconds(column, name)
    if holds_durations(kind):
        return pc.divide(
            pc.cast(pc.cast(column, pa.int64() if kind.bit_width == 64 else pa.int32()), pa.float64()),
            _PER_SECOND[kind.unit],
        )
    return column


def holds_cells(kind: pa.DataType) -> bool:
    """Whether an Arrow type is of cells, or a dictionary of them: no lists, structures, runs, bytes or extensions."""
    return _is_flat(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _is_flat(kind: pa.DataType) -> bool:
    return bool(_is_text(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind))


def text_bytes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the bytes of each row's text once it has one of its own, ``[B]``; 0 for what is no text.

    A dictionary, or a view, has a text once for many rows: `plain` writes it out for each.
    """
    kind = column.type
    if not _is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
        return np.zeros(len(column), np.int64)
    return np.concatenate([np.empty(0, np.int64), *(_text_bytes(chunk) for chunk in column.chunks)])


def _text_bytes(cells: pa.Array, rows: npt.NDArray[np.int64] | slice = slice(None)) -> npt.NDArray[np.int64]:
    kind, data = cells.type, cells.buffers()
    if pa.types.is_dictionary(kind):
        codes = integers(pc.cast(cells.indices, pa.int64()))
        counts = np.zeros(len(cells), np.int64)
        # Of the rows alone: many a chunk may share one large dictionary.
        counts[codes >= 0] = _text_bytes(cells.dictionary, codes[codes >= 0])
        return counts
    if not len(cells):
        return np.zeros(0, np.int64)
    size = np.dtype(np.int64 if pa.types.is_large_string(kind) else np.int32)
    if pa.types.is_string_view(kind):
        counts = np.frombuffer(data[1], size, 4 * (cells.offset + len(cells)))[4 * cells.offset :: 4][rows]
        return np.maximum(counts, 0, dtype=np.int64)  # those of missing cells can be anything
    offsets = np.frombuffer(data[1], size, cells.offset + len(cells) + 1)[cells.offset :]
    return np.subtract(offsets[1:][rows], offsets[:-1][rows], dtype=np.int64)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _trimmed(texts: pa.Array) -> pa.Array:
    # large_string can hold more than 2 GiB in one chunk.
    texts = pc.utf8_trim_whitespace(pc.cast(texts, pa.large_string()))
    return pc.if_else(pc.equal(texts, EMPTY_TEXT), NO_TEXT, texts)


def holds_durations(kind: pa.DataType) -> bool:
    """Whether an Arrow type is of durations or times of the day, which `plain` turns into seconds."""
    return bool(pa.types.is_duration(kind) or pa.types.is_time(kind))


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode a dictionary of texts, numbers, truth values or dates; others are unchanged."""
    kind = column.type.value_type
    if not _is_flat(kind):
        return column
    decode = _taken_views if pa.types.is_string_view(kind) else pc.take
    return pa.chunked_array([decode(chunk.dictionary, chunk.indices) for chunk in column.chunks], kind)


def _taken_views(texts: pa.Array, indices: pa.Array) -> pa.Array:
    """Take some texts of an array of views, as polars stores the categories of a column; Arrow can't."""
    present, views, *data = texts.buffers()
    fixed = pa.Array.from_buffers(pa.binary(16), len(texts), [present, views], offset=texts.offset)
    taken = pc.take(fixed, indices)
    return pa.Array.from_buffers(texts.type, len(taken), [*taken.buffers(), *data], offset=taken.offset)


def _microseconds(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return dates and timestamps of any unit and time zone as timestamps in microseconds, UTC."""
    if pa.types.is_timestamp(column.type):
        # This drops the time zone, which may be unknown here, and keeps the number: it counts from 1970-01-01 UTC.
        column = pc.cast(column, pa.timestamp(column.type.unit))
    truncates = column.type == pa.timestamp("ns")
    try:
        moments = pc.cast(column, pa.timestamp("us"), safe=not truncates)
        pc.min_max(moments).as_py()  # fails beyond the years of Python's calendar
    except (pa.ArrowInvalid, OverflowError) as error:
        raise TableError(f"column {name!r}: it holds dates beyond the years 1 to 9999") from error
    return moments


def cell_type(column: pa.ChunkedArray) -> CellType:
    """Return the cell type of a column from `plain`."""
    kind = column.type
    if column.null_count == len(column):
        return CellType.EMPTY
    if pa.types.is_large_string(kind):
        return CellType.TEXT
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return CellType.NUMBER
    if pa.types.is_boolean(kind):
        return CellType.BOOLEAN
    if pa.types.is_timestamp(kind):
        return CellType.DATE
    return CellType.OTHER


def distinct(column: pa.ChunkedArray) -> Distinct:
    """Return the distinct cells of a column from `plain`."""
    encoded = column.combine_chunks().dictionary_encode()
    codes = integers(pc.cast(encoded.indices, pa.int64()))
    # A part at a time: converting many cells at once would hold up every other thread of a service.
    cells = encoded.dictionary
    parts = (cells.slice(start, 256).to_pylist() for start in range(0, len(cells), 256))
    return Distinct([cell for part in parts for cell in part], codes)


def canonical_column(
    column: pa.ChunkedArray, kind: FeatureKind, name: str, reading: Reading | None = None
) -> npt.NDArray[Any]:
    """Convert a column to the canonical column of a kind.

    Args:
        column: ``[B]``, of any Arrow type.
        kind: The kind of the result.
        name: The column's name, for messages.
        reading: How cells of this column are written; None for plain numbers and ISO 8601 dates.

    Returns:
        ``[B]``: for a categorical column objects, ``str`` or ``None``; otherwise float64, with NaN for missing.

    Raises:
        TableError: A cell does not fit the kind, is infinite, or a text of more than `LONGEST_TEXT` bytes; the message
            names column and row (from 1).
    """
    counts = text_bytes(column)
    if counts.max(initial=0) > LONGEST_TEXT:
        row = int(np.argmax(counts > LONGEST_TEXT)) + 1
        raise TableError(f"column {name!r}, row {row}: {explain_long_text(int(counts[row - 1]))}", row=row)
    return canonical_cells(plain(column, name), kind, name, reading)


def canonical_cells(
    cells: pa.ChunkedArray, kind: FeatureKind, name: str, reading: Reading | None = None
) -> npt.NDArray[Any]:
    """Convert a column from `plain` as `canonical_column` converts any column."""
    stored = cell_type(cells)
    if stored is CellType.EMPTY:
        categorical = kind is FeatureKind.CATEGORICAL
        return np.full(len(cells), None, object) if categorical else np.full(len(cells), np.nan)
    if stored is CellType.OTHER:
        raise TableError(f"column {name!r}: cells of the type {cells.type} can't be used")
    match kind:
        case FeatureKind.CATEGORICAL:
            return _parsed(cells, name, canonical_category, None, object)
        case FeatureKind.DATE:
            return _dates(cells, stored, name, reading)
        case FeatureKind.BOOLEAN:
            # Numbers are parsed as text, so that all but 0 and 1 are refused.
            return _parsed(cells, name, lambda cell: parse_boolean(str(cell)), np.nan, np.float64)
        case FeatureKind.NUMERIC:
            return _read_numbers(cells, stored, name, reading)


def is_missing(column: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return whether each cell of a canonical column is missing, ``[B]``."""
    if column.dtype == object:
        return np.asarray(column == None, dtype=np.bool_)  # noqa: E711 - compares each cell, not the column
    return np.asarray(np.isnan(column), dtype=np.bool_)


def _dates(cells: pa.ChunkedArray, stored: CellType, name: str, reading: Reading | None) -> npt.NDArray[np.float64]:
    if stored is not CellType.DATE:
        parse = parse_date if reading is None else reading.parse
        return _parsed(cells, name, lambda cell: parse(str(cell)), np.nan, np.float64)
    return _floats(pc.cast(cells, pa.int64())) / _MICROSECONDS_PER_DAY


def _read_numbers(
    cells: pa.ChunkedArray, stored: CellType, name: str, reading: Reading | None
) -> npt.NDArray[np.float64]:
    if stored is CellType.DATE:
        raise TableError(f"column {name!r}: expected numbers, found dates")
    if stored is CellType.TEXT:
        parse = parse_number if reading is None else reading.parse
        try:
            if isinstance(reading, NumberReading) and reading.decimal == ",":
                numbers = _parsed(cells, name, parse, np.nan, np.float64)
            else:
                numbers = _floats(pc.cast(cells, pa.float64()))
        except pa.ArrowInvalid:  # slower, and names the cell
            numbers = _parsed(cells, name, parse, np.nan, np.float64)
    else:
        numbers = _floats(cells)
    infinite = np.isinf(numbers)
    if infinite.any():
        row = int(np.argmax(infinite)) + 1
        raise TableError(
            f"column {name!r}, row {row}: {numbers[row - 1]} is not finite: correct it, or leave the cell "
            "empty if the value is missing",
            row=row,
        )
    return numbers


def _floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    # safe=False: integers beyond 2^53 are rounded, as any reader of numbers rounds them.
    return floats(pc.cast(column, pa.float64(), safe=False))


def _parsed(
    cells: pa.ChunkedArray, name: str, parse: Callable[[Any], Any], missing: Any, dtype: npt.DTypeLike
) -> npt.NDArray[Any]:
    values = distinct(cells)
    results = []
    for index, value in enumerate(values.values):
        try:
            results.append(parse(value))
        except ValueError as error:
            # Distinct cells come in the order of their first rows, so this is the first bad row.
            row = values.first_row(index)
            raise TableError(f"column {name!r}, row {row}: {error}", row=row) from error
    return values.spread(results, missing, dtype)
