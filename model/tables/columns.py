"""Conversion of one Arrow column to a canonical numpy column; errors name the first cell that does not fit.

`model.tables.schema` describes canonical columns. Each distinct cell is parsed once, so that a column of a million rows
needs no Python loop over its rows.

Arguments of `pyarrow.compute`, and numbers from it, are made from buffers here: `pyarrow.scalar`, `pyarrow.array`,
``to_numpy`` and Python values import pandas where it is installed, which takes more than a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from murho.model.arrays import Array, Bools, Doubles, Ints
from murho.model.errors import TableError
from murho.model.runtime import trim_heap
from murho.model.tables.cells import (
    LONGEST_TEXT,
    MISSING_WORDS,
    canonical_category,
    explain_long_text,
    parse_boolean,
    parse_date,
    parse_number,
    without_codes,
)
from murho.model.tables.overrides import FeatureKind
from murho.model.tables.readings import NumberReading, Reading


def text_array(texts: Sequence[str | None]) -> pa.StringArray:
    """Texts as an Arrow array, ``[len(texts)]``; None is a missing one."""
    encoded = [b"" if text is None else text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    present = np.fromiter((text is not None for text in texts), np.bool_, len(texts))
    buffers = [_bitmap(present), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def number_array(numbers: Array, present: Bools | None = None) -> pa.Array:
    """Numbers ``[B]`` as an Arrow array of their type; those that are not present are missing."""
    data = pa.py_buffer(np.ascontiguousarray(numbers))
    bitmap = None if present is None else _bitmap(present)
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [bitmap, data])


def float_array(numbers: Doubles) -> pa.DoubleArray:
    """Numbers ``[B]`` as an Arrow array; NaN is a missing value."""
    return number_array(numbers, ~np.isnan(numbers))


def list_array(numbers: Array) -> pa.Array:
    """Numbers ``[B]`` as `float_array` has them; of ``[B, …]`` a list in each cell."""
    if numbers.ndim == 1:
        return float_array(numbers)
    lists = number_array(numbers.ravel())
    if not numbers.shape[1]:  # draws where there are none
        return pa.ListArray.from_arrays(number_array(np.zeros(len(numbers) + 1, np.int32)), lists)
    for length in reversed(numbers.shape[1:]):
        lists = pa.FixedSizeListArray.from_arrays(lists, length)
    return lists


def _bitmap(present: Bools) -> pa.Buffer | None:
    """Return the bits of the cells that are not missing; None if all are there."""
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


_MINUS_ONE, _NAN = number_array(np.array([-1]))[0], number_array(np.array([np.nan]))[0]


def floats(column: pa.ChunkedArray | pa.Array) -> Doubles:
    """Return a column of float64 as numpy has it, ``[B]``, NaN where a cell is missing."""
    return _numbers(pc.fill_null(column, _NAN), np.dtype(np.float64))


def plain_numbers(cells: pa.ChunkedArray) -> Doubles | None:
    """Return a column from `plain` as numbers, ``[B]``, NaN where one is missing; None if a text is no plain number."""
    try:
        # safe=False: integers beyond 2^53 are rounded, as any reader of numbers rounds them.
        return floats(pc.cast(cells, pa.float64(), safe=False))
    except pa.ArrowInvalid:
        return None


def merged_numbers(cells: pa.ChunkedArray, numbers: Doubles) -> int:
    """Count the different whole numbers beyond 2^53 that float64 does not tell from another one of the column.

    Args:
        cells: A column from `plain`, ``[B]``, of numbers or of texts that are plain numbers.
        numbers: The same as float64, ``[B]``.
    """
    large = np.flatnonzero(np.abs(numbers) >= MOST_EXACT)
    if pa.types.is_floating(cells.type) or not large.size:
        return 0
    exact = set(map(Decimal, distinct(cells.take(number_array(large))).values))
    return len(exact) - len(np.unique(numbers[large]))


def integers(column: pa.ChunkedArray | pa.Array) -> Ints:
    """Return a column of integers as numpy has it, ``[B]``, -1 where a cell is missing."""
    return _numbers(pc.fill_null(pc.cast(column, pa.int64()), _MINUS_ONE), np.dtype(np.int64))


def _numbers(column: pa.ChunkedArray | pa.Array, dtype: np.dtype[Any]) -> Array:
    cells = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.frombuffer(cells.buffers()[1] or b"", dtype, cells.offset + len(cells))[cells.offset :]


def rows_of(table: pa.Table, rows: Ints | None) -> pa.Table:
    """Rows of a table, in the given order; the table itself, not a copy, where all rows are asked for in order.

    Args:
        table: The table.
        rows: Indices of rows, ``[B]``; None: all.
    """
    if rows is None or np.array_equal(rows, np.arange(table.num_rows)):
        return table
    return table.take(number_array(rows.astype(np.int64)))


def release_memory() -> None:
    """Give the memory of tables that no longer exist back to the system."""
    pa.default_memory_pool().release_unused()
    trim_heap()


_MICROSECONDS_PER_DAY = 86_400e6
_DIGITS_OF_INT64 = 18
MOST_EXACT = 2.0**53
"""Largest size up to which float64 has all whole numbers."""


class Distinct(NamedTuple):
    """The distinct cells of a column.

    Attributes:
        values: The distinct cells without missing ones, in the order of their first rows.
        codes: Index of each row's cell in ``values``, ``[B]``; -1 for a missing cell.
    """

    values: list[Any]
    codes: Ints

    def counts(self) -> Ints:
        """Return the number of rows with each of ``values``."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values))

    def first_row(self, value: int) -> int:
        """Return the row number, from 1, of the first row with the cell ``values[value]``."""
        return int(np.argmax(self.codes == value)) + 1


def plain(column: pa.ChunkedArray, name: str, words: frozenset[str] = MISSING_WORDS) -> pa.ChunkedArray:
    """Return the column as text, numbers, truth values or timestamps; columns of other types are unchanged.

    Blank text, texts that are one of some words, and NaN become missing cells.

    Raises:
        TableError: A date lies beyond the years 1 to 9999.
    """
    if pa.types.is_dictionary(column.type):
        column = _decode(column)
    kind = column.type
    if holds_text(kind):
        # A chunk at a time: each step makes a copy. One of large_string can hold more than 2 GiB.
        return pa.chunked_array(
            [trim(pc.cast(chunk, pa.large_string()), words) for chunk in column.chunks], pa.large_string()
        )
    if pa.types.is_decimal(kind) and not kind.scale:  # whole numbers, such as keys from a database: float64 rounds them
        return pc.cast(column, pa.int64() if kind.precision <= _DIGITS_OF_INT64 else pa.large_string())
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        column = pc.cast(column, pa.float64())
        return pc.if_else(pc.is_nan(column), pa.NULL, column)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _microseconds(column, name)
    if holds_durations(kind):
        whole = pc.cast(column, pa.duration("us") if pa.types.is_duration(kind) else pa.time64("us"), safe=False)
        return pc.divide(pc.cast(pc.cast(whole, pa.int64()), pa.float64()), 1e6)
    return column


def holds_cells(kind: pa.DataType) -> bool:
    """Whether an Arrow type is of cells, or a dictionary of them: no lists, structures, runs, bytes or extensions."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(holds_text(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind))


def holds_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is of texts, or a dictionary of them."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def trim(texts: pa.Array, words: frozenset[str] = frozenset()) -> pa.Array:
    """Texts without blanks around them; null where nothing is left, or one of some words."""
    texts = pc.utf8_trim_whitespace(texts)
    marks, longest = _marks(words, texts.type)
    short = texts.filter(pc.less_equal(pc.binary_length(texts), longest))
    if not pc.any(pc.is_in(short, marks), min_count=0).as_py():  # takes half the time
        return texts
    return pc.if_else(pc.is_in(texts, marks), pa.NULL, texts)


@lru_cache
def _marks(words: frozenset[str], kind: pa.DataType) -> tuple[pa.Array, pa.Scalar]:
    """Return the texts for a missing cell, and the length of the longest one, in bytes."""
    marks = text_array(["", *sorted(words)])
    return marks.cast(kind), pc.max(pc.binary_length(marks))


def holds_durations(kind: pa.DataType) -> bool:
    """Whether an Arrow type is of durations or times of the day, which `plain` turns into seconds."""
    return bool(pa.types.is_duration(kind) or pa.types.is_time(kind))


def _decode(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode a dictionary of texts, numbers, truth values or dates; others are unchanged."""
    if not holds_cells(column.type):
        return column
    # Arrow can't take texts from an array of views, as polars stores the categories of a column.
    kind = pa.large_string() if holds_text(column.type) else column.type.value_type
    return pa.chunked_array([pc.take(pc.cast(chunk.dictionary, kind), chunk.indices) for chunk in column.chunks], kind)


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


def stored_kind(column: pa.ChunkedArray) -> FeatureKind | None:
    """Return the kind of the cells of a column from `plain`: text is categorical; None for other types."""
    return next((kind for holds, kind in _STORED.items() if holds(column.type)), None)


_STORED = {
    pa.types.is_large_string: FeatureKind.CATEGORICAL,
    pa.types.is_null: FeatureKind.CATEGORICAL,
    pa.types.is_integer: FeatureKind.NUMERIC,
    pa.types.is_floating: FeatureKind.NUMERIC,
    pa.types.is_boolean: FeatureKind.BOOLEAN,
    pa.types.is_timestamp: FeatureKind.DATE,
}


def distinct(column: pa.ChunkedArray) -> Distinct:
    """Return the distinct cells of a column from `plain`."""
    encoded = column.combine_chunks().dictionary_encode()
    codes = integers(encoded.indices)
    # A part at a time: converting many cells at once would hold up every other thread of a service.
    cells = encoded.dictionary
    parts = (cells.slice(start, 256).to_pylist() for start in range(0, len(cells), 256))
    return Distinct([cell for part in parts for cell in part], codes)


def canonical_column(
    column: pa.ChunkedArray,
    kind: FeatureKind,
    name: str,
    reading: Reading | None = None,
    words: frozenset[str] = MISSING_WORDS,
) -> Array:
    """Convert a column to the canonical column of a kind.

    Args:
        column: ``[B]``, of any Arrow type.
        kind: The kind of the result.
        name: The column's name, for messages.
        reading: How cells of this column are written; None for plain numbers and ISO 8601 dates.
        words: Texts, and numbers as text, that mean a missing cell.

    Returns:
        ``[B]``: for a categorical column objects, ``str`` or ``None``; otherwise float64, with NaN for missing.

    Raises:
        TableError: A cell does not fit the kind, is infinite, or a text of more than `LONGEST_TEXT` bytes; the message
            names column and row (from 1).
    """
    cells = plain(column, name, words)
    if pa.types.is_large_string(cells.type):
        sizes = pc.binary_length(cells)
        if (pc.max(sizes).as_py() or 0) > LONGEST_TEXT:
            counts = integers(sizes)
            row = int(np.argmax(counts > LONGEST_TEXT)) + 1
            raise TableError(f"column {name!r}, row {row}: {explain_long_text(int(counts[row - 1]))}", row=row)
    return canonical_cells(cells, kind, name, reading, words)


def canonical_cells(
    cells: pa.ChunkedArray,
    kind: FeatureKind,
    name: str,
    reading: Reading | None = None,
    words: frozenset[str] = MISSING_WORDS,
) -> Array:
    """Convert a column from `plain` as `canonical_column` converts any column."""
    stored = stored_kind(cells)
    if cells.null_count == len(cells):
        return np.full(len(cells), None, object if kind is FeatureKind.CATEGORICAL else float)
    if stored is None:
        raise TableError(f"column {name!r}: cells of the type {cells.type!s:.60} can't be used")
    if kind is FeatureKind.CATEGORICAL:

        def category(cell: Any) -> str | None:
            text = canonical_category(cell)
            return None if text in words else text

        return _parse(cells, name, category, object)
    if kind is FeatureKind.NUMERIC:
        return without_codes(_read_numbers(cells, stored, name, reading), words)
    if kind is stored is FeatureKind.DATE:
        days = floats(pc.cast(pc.cast(cells, pa.int64()), pa.float64(), safe=False)) / _MICROSECONDS_PER_DAY
        return without_codes(days, words, days=True)
    # Numbers are parsed as text, so that of truth values all but 0 and 1 are refused.
    parse = parse_boolean if kind is FeatureKind.BOOLEAN else parse_date if reading is None else reading.parse
    return _parse(cells, name, lambda cell: parse(str(cell)))


def _read_numbers(cells: pa.ChunkedArray, stored: FeatureKind, name: str, reading: Reading | None) -> Doubles:
    if stored is FeatureKind.DATE:
        raise TableError(f"column {name!r}: expected numbers, found dates")
    comma = isinstance(reading, NumberReading) and reading.decimal == ","
    numbers = None if comma and stored is FeatureKind.CATEGORICAL else plain_numbers(cells)
    if numbers is None:  # slower, and names the cell
        numbers = _parse(cells, name, parse_number if reading is None else reading.parse)
    infinite = np.isinf(numbers)
    if infinite.any():
        row = int(np.argmax(infinite)) + 1
        raise TableError(
            f"column {name!r}, row {row}: {numbers[row - 1]} is not finite: correct it, or leave the cell "
            "empty if the value is missing",
            row=row,
        )
    return numbers


def _parse(
    cells: pa.ChunkedArray,
    name: str,
    parse: Callable[[Any], Any],
    dtype: npt.DTypeLike = np.float64,
) -> Array:
    values = distinct(cells)
    results = []
    for index, value in enumerate(values.values):
        try:
            results.append(parse(value))
        except ValueError as error:
            # Distinct cells come in the order of their first rows, so this is the first bad row.
            row = values.first_row(index)
            raise TableError(f"column {name!r}, row {row}: {error}", row=row) from error
    # The code -1 of a missing cell selects the last entry, None, which is NaN among numbers.
    return np.array([*results, None], dtype)[values.codes]
