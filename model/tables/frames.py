"""Conversion of data frames to Arrow tables, the input of `model.tables.schema_inference`.

A data frame is recognised by its attributes, so that no library of data frames is imported: all but pandas and Modin
offer Arrow's C stream interface. narwhals would replace none of this: its conversion keeps the index of pandas, and
refuses repeated names, sparse columns and categories that are no texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from murho.model.errors import TableError
from murho.model.tables.cells import as_text
from murho.model.tables.columns import plain, stored_kind
from murho.model.tables.files import check_names
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "declared_kinds",
    "is_frame",
    "table_from_frame",
    "table_from_matrix",
    "target_name",
    "unnamed",
]


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
    check_names(names)
    if not hasattr(frame, "iloc"):
        return pa.table(frame).rename_columns(list(names))
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


def table_from_matrix(matrix: NDArray[Any], names: Sequence[str]) -> pa.Table:
    """Turn a numeric matrix into a table of float64; NaN is a missing cell.

    Args:
        matrix: ``[B, len(names)]``.
        names: Names of the columns, in column order.
    """
    columns = np.ascontiguousarray(matrix.T, dtype=np.float64)
    return pa.table({name: pa.array(column) for name, column in zip(names, columns, strict=True)})


def declared_kinds(table: pa.Table) -> dict[str, FeatureKind]:
    """Return the kinds that follow from the Arrow types of a table's columns.

    A numeric column stays numeric even if it numbers the rows, and a categorical column stays categorical even if its
    categories are numbers. Text columns get no kind here, since text often holds dates and numbers: their kind is
    inferred from the cells.

    Returns:
        Column → kind, for columns of numbers, truth values and categories only.
    """
    kinds = {}
    for name, column in zip(table.column_names, table.slice(0, 0).columns, strict=True):
        if pa.types.is_dictionary(column.type):
            kinds[name] = FeatureKind.CATEGORICAL
        elif (kind := stored_kind(plain(column, name))) in (FeatureKind.NUMERIC, FeatureKind.BOOLEAN):
            kinds[name] = kind
    return kinds


def target_name(y: Any, features: Sequence[str]) -> str:
    """Return the name of a Series, or ``y`` without one; underscores are added while a feature has that name."""
    name = getattr(y, "name", None)
    name = name if isinstance(name, str) and name.strip() else "y"
    while name in features:
        name += "_"
    return name


def unnamed(count: int) -> list[str]:
    """Return names for unnamed columns, ``x0``, ``x1`` and so on, as in scikit-learn."""
    return [f"x{index}" for index in range(count)]


def _categories(series: Any) -> pa.DictionaryArray:
    """Convert a categorical column of pandas. Its categories may be any objects, such as intervals."""
    codes = np.asarray(series.cat.codes)
    texts = pa.array([as_text(category) for category in series.cat.categories], type=pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), texts)
