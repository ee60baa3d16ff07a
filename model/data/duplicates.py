"""Rows that are the same, or almost the same, in all features.

A row that stands twice in a table must not be learned from in one place and judge in the other: the judgement would be
of memory. So rows with the same features are held out together (`model.data.units`). Rows that are only almost the same
are counted and told to the user, who knows whether they are copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.columns import is_missing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from murho.model.data.schema import Columns

__all__ = ["NearDuplicates", "column_codes", "equal_rows", "find_near_duplicates"]

NEAR = 1e-3
"""Numbers that round to the same multiple of this many standard deviations are almost the same."""
COARSER = 10.0
LEAST_SHARE = 0.3
"""Almost equal pairs are reported if they are at least this share of the pairs that are equal after a rounding
`COARSER` times as coarse. Where rows come close by chance, the coarse rounding has ten times as many pairs in one
dimension, and a hundred times as many in two; where they are copies with small changes, it has hardly more."""


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """Rows whose features are almost, but not exactly, those of another row.

    Attributes:
        rows: Number of such rows.
        example: Indices of two of them, the first pair in the order of the table.
    """

    rows: int
    example: tuple[int, int]


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


def find_near_duplicates(columns: Columns, equal: NDArray[np.int64]) -> NearDuplicates | None:
    """Find rows that are equal after rounding but not exactly, unless chance alone makes about as many.

    Args:
        columns: Canonical columns of the features, ``[N]`` each.
        equal: The return value of `equal_rows` for these columns.

    Returns:
        The rows; None if there are none, or if they are as many as rows that come close by chance (`LEAST_SHARE`).
    """
    near = equal_rows(_rounded(column, NEAR) for column in columns.values())
    pairs = _pairs(near) - _pairs(equal)
    if pairs <= 0:
        return None
    coarse = equal_rows(_rounded(column, COARSER * NEAR) for column in columns.values())
    if pairs < LEAST_SHARE * (_pairs(coarse) - _pairs(equal)):
        return None
    # A cell of the rounding with several different rows.
    order = np.lexsort((equal, near))
    differs = (np.diff(near[order]) == 0) & (np.diff(equal[order]) != 0)
    cells = np.unique(near[order][1:][differs])
    rows = np.flatnonzero(np.isin(near, cells))
    first = rows[0]
    other = next(row for row in rows[1:] if near[row] == near[first] and equal[row] != equal[first])
    return NearDuplicates(len(rows), (int(first), int(other)))


def _rounded(column: NDArray[Any], step: float) -> NDArray[Any]:
    """Round numbers to multiples of ``step`` standard deviations; categories stay."""
    if column.dtype == object:
        return column
    present = column[~is_missing(column)]
    scale = float(present.std()) if present.size else 0.0
    if not (np.isfinite(scale) and scale > 0.0):
        return column
    rounded: NDArray[Any] = np.rint((column - present.mean()) / (step * scale))
    return rounded


def _pairs(codes: NDArray[np.int64]) -> int:
    """Number of pairs of rows with the same code."""
    counts = np.bincount(codes)
    return int((counts * (counts - 1) // 2).sum())
