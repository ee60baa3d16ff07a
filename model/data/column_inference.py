"""Inference of a whole column's kind, or of the reason why it is no feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from murho.model.data.cells import parse_date, parse_number
from murho.model.data.columns import (
    CellType,
    Distinct,
    canonical_column,
    cell_type,
    distinct,
    is_missing,
    plain,
)
from murho.model.data.schema import FeatureKind
from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Inference", "infer_column"]

_MOSTLY = 0.8
"""A text column with at least this share of numbers (or dates) is refused: its other cells are likely mistakes."""

_IDENTIFIER_VALUES = 20
"""A column with this many distinct values or fewer is never taken for an identifier."""


@dataclass(frozen=True, slots=True)
class Inference:
    """The inferred properties of a column.

    Attributes:
        kind: Kind of the cells.
        missing: Whether any cell is missing.
        left_out: Reason why the column is no feature; None for a feature.
    """

    kind: FeatureKind
    missing: bool
    left_out: str | None


def infer_column(column: pa.ChunkedArray, name: str, declared: FeatureKind | None = None) -> Inference:
    """Infer the kind of a column, and whether it is a feature.

    Args:
        column: The whole column ``[N]``.
        name: The column's name, for messages.
        declared: Kind given by the user. It replaces the inferred kind, and the column is not tested for identifiers.

    Returns:
        The inferred properties.

    Raises:
        TableError: A cell doesn't fit the kind, most cells but not all are numbers or dates, or a number is infinite;
            the message names column and row (from 1).
    """
    cells = plain(column, name)
    stored = cell_type(cells)
    if stored is CellType.EMPTY:
        return Inference(declared or FeatureKind.CATEGORICAL, missing=True, left_out="every cell is missing")
    if stored is CellType.OTHER:
        kind = declared or FeatureKind.CATEGORICAL
        return Inference(kind, missing=False, left_out=f"cells of the type {column.type} can't be used")
    kind = declared or _kind(cells, stored, name)
    values = canonical_column(column, kind, name)
    absent = is_missing(values)
    present = values[~absent]
    left_out = None
    if present.size == 0:  # texts such as "nan" are missing too
        left_out = "every cell is missing"
    elif not absent.any() and bool(np.all(present == present[0])):
        left_out = "every cell is the same"
    elif declared is None and _identifies(present, kind, complete=not absent.any()):
        left_out = "it identifies rows"
    return Inference(kind, bool(absent.any()), left_out)


def _kind(cells: pa.ChunkedArray, stored: CellType, name: str) -> FeatureKind:
    match stored:
        case CellType.NUMBER:
            return FeatureKind.NUMERIC
        case CellType.BOOLEAN:
            return FeatureKind.BOOLEAN
        case CellType.DATE:
            return FeatureKind.DATE
    try:
        pc.cast(cells, pa.float64())
    except pa.ArrowInvalid:
        return _text_kind(distinct(cells), name)
    return FeatureKind.NUMERIC


def _text_kind(values: Distinct, name: str) -> FeatureKind:
    if _fits(values, name, parse_number, "numbers"):
        return FeatureKind.NUMERIC
    if {value.lower() for value in values.values} <= {"true", "false"}:
        return FeatureKind.BOOLEAN
    if _fits(values, name, parse_date, "dates"):
        return FeatureKind.DATE
    _check_commas(values, name)
    return FeatureKind.CATEGORICAL


def _fits(values: Distinct, name: str, parse: Callable[[str], float], what: str) -> bool:
    """Whether all cells can be parsed. Raises a TableError if most can be, but not all."""
    share, misfit = _share(values, parse)
    if misfit is None:
        return True
    if share >= _MOSTLY:
        raise TableError(
            f"column {name!r}, row {values.first_row(misfit)}: {values.values[misfit]!r} among {what} "
            f"({share:.0%} of the cells are {what}): correct the cell, leave it empty if the value is "
            'missing, or declare kind = "categorical" if it is meant'
        )
    return False


def _check_commas(values: Distinct, name: str) -> None:
    # Without this check "3,5" and "1,234" would silently become categories.
    share, _ = _share(values, lambda text: parse_number(text.replace(".", "").replace(",", "")))
    if share < _MOSTLY:
        return
    comma = next((index for index, value in enumerate(values.values) if "," in value), None)
    if comma is not None:
        raise TableError(
            f"column {name!r}, row {values.first_row(comma)}: {values.values[comma]!r} looks like a number "
            "with a comma: write numbers with a decimal point and without digit groups, "
            'or declare kind = "categorical" if it is meant'
        )


def _share(values: Distinct, parse: Callable[[str], float]) -> tuple[float, int | None]:
    """Return the share of rows whose cells can be parsed, and the index of the first value that can't."""
    fitting = np.array([_parses(parse, value) for value in values.values], dtype=bool)
    counts = values.counts()
    misfit = None if fitting.all() else int(np.argmin(fitting))
    return float(counts[fitting].sum() / counts.sum()), misfit


def _parses(parse: Callable[[str], float], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _identifies(present: npt.NDArray[Any], kind: FeatureKind, *, complete: bool) -> bool:
    """Whether the present cells identify their rows: mostly distinct texts, or consecutive integers from 0 or 1."""
    count = present.size
    if kind is FeatureKind.CATEGORICAL:
        different = len(set(present.tolist()))
        return different > _IDENTIFIER_VALUES and different > count / 2
    if kind is not FeatureKind.NUMERIC or not complete or count <= _IDENTIFIER_VALUES:
        return False
    first, last = present.min(), present.max()
    # Sorting comes last, as few columns pass the cheap tests.
    return (
        first in (0.0, 1.0)
        and last - first == count - 1
        and bool(np.array_equal(np.sort(present), first + np.arange(count)))
    )
