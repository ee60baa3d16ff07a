"""The cells that `murho predict` writes: missing values, and lists."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from murho.model.data.arrow_values import float_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["lists_as_text", "written_cells"]


def written_cells(column: NDArray[Any], *, as_csv: bool) -> pa.Array:
    """A column of a table, to write.

    Args:
        column: Cells ``[B]``, or a list of numbers in each, ``[B, …]``.
        as_csv: Whether they go to CSV, which has no lists: these become text.

    Returns:
        NaN, and None, are missing values.
    """
    if column.ndim == 1 and column.dtype == np.float64:
        return float_array(column)
    if as_csv:
        return pa.array(lists_as_text(column), from_pandas=True)
    if column.ndim == 1:
        return pa.array(column, from_pandas=True)
    if 0 in column.shape:
        return pa.array(column.tolist(), pa.list_(pa.float64()))
    lists = pa.array(np.ascontiguousarray(column).ravel())
    for length in reversed(column.shape[1:]):
        lists = pa.FixedSizeListArray.from_arrays(lists, length)
    return lists


def lists_as_text(column: NDArray[Any]) -> NDArray[Any]:
    """Cells for CSV, ``[B]``: a list becomes JSON, such as ``["Adelie", "Gentoo"]``, whatever is in its texts."""
    if column.ndim == 1 and (column.dtype != object or not any(isinstance(cell, list) for cell in column)):
        return column
    cells = column if column.ndim == 1 else [cell.tolist() for cell in column]
    texts = [json.dumps(cell, ensure_ascii=False) if isinstance(cell, list) else cell for cell in cells]
    return np.array(texts, dtype=object)
