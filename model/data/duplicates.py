"""Rows that are the same in all features.

A row that stands twice in a table must not be learned from in one place and judge in the other: the judgement would be
of memory. So rows with the same features are held out together (`model.data.units`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["column_codes", "equal_rows"]


def column_codes(column: NDArray[Any]) -> NDArray[np.int64]:
    """Number the different cells of a column from 0 on, ``[N]``. Missing cells are one cell."""
    if column.dtype == object:
        numbers: dict[object, int] = {}
        return np.fromiter((numbers.setdefault(cell, len(numbers)) for cell in column), np.int64, len(column))
    return np.unique(column, return_inverse=True)[1].reshape(-1).astype(np.int64)


def equal_rows(columns: Iterable[NDArray[Any]]) -> NDArray[np.int64]:
    """Number the different rows of some columns from 0 on, ``[N]``: rows with all cells equal share a number.

    Args:
        columns: Columns ``[N]``, at least one; missing cells are equal to each other.
    """
    codes: NDArray[np.int64] | None = None
    for column in columns:
        further = column_codes(column)
        if codes is None:
            codes = further
            continue
        if codes.size and codes.max() + 1 == len(codes):
            break  # all rows differ already
        codes = column_codes(codes * (further.max(initial=0) + 1) + further)
    if codes is None:
        raise ValueError("at least one column is needed")
    return codes
