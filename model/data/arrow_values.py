"""Values for the functions of pyarrow, and numbers from it, without pandas.

`pyarrow.scalar`, `pyarrow.array`, ``to_numpy`` and Python values as arguments of `pyarrow.compute` import pandas where
it is installed, which takes more than a second. What every table needs is made from buffers instead.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from murho.model.runtime.free_memory import give_back

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

    import numpy.typing as npt

__all__ = [
    "EMPTY_TEXT",
    "NO_NUMBER",
    "NO_TEXT",
    "float_array",
    "floats",
    "integers",
    "list_array",
    "number_array",
    "release_memory",
    "rows_of",
    "text_array",
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
