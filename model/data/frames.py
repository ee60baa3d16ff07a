"""Data frames of pandas, polars and pyarrow as the Arrow tables that `model.data.schema_inference` reads.

None of the three is imported for this but pyarrow: a frame is known by what it can do.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from murho.model.data.cells import canonical_category
from murho.model.data.schema import FeatureKind
from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["declared_kinds", "is_frame", "table_from_frame", "table_from_matrix", "target_name", "unnamed"]


def is_frame(data: object) -> bool:
    """Whether the data are a data frame: columns with names, each of a type of its own."""
    return hasattr(data, "columns") and (hasattr(data, "iloc") or hasattr(data, "__arrow_c_stream__"))


def table_from_frame(frame: Any, names: Sequence[str]) -> pa.Table:
    """Turns a data frame into a table.

    Categories of pandas become text, each written in its one canonical way; its missing values (NaN, NaT, NA) are
    missing cells. The index is not looked at.

    Args:
        frame: B rows and as many columns as there are names; see `is_frame`.
        names: What to call the columns, in their order.

    Returns:
        The table.

    Raises:
        TableError: A name is empty or comes twice, or Arrow has no type for the cells of a column; the message
            names the column.
    """
    _check_names(names)
    if not hasattr(frame, "iloc"):
        table = pa.table(frame)
        return table.rename_columns(list(names))
    columns = {}
    for index, name in enumerate(names):
        series = frame.iloc[:, index]
        try:
            columns[name] = (
                _categories(series) if hasattr(series, "cat") else pa.array(series, from_pandas=True)
            )
        except (pa.ArrowException, OverflowError) as error:
            raise TableError(
                f"column {name!r}, of the type {series.dtype}, can't be used: {error}; give numbers, truth values, "
                "dates, texts or categories, one type a column"
            ) from error
    return pa.table(columns)


def table_from_matrix(matrix: NDArray[Any], names: Sequence[str]) -> pa.Table:
    """Turns a numeric matrix into a table of float64; NaN is a missing cell.

    Args:
        matrix: ``[B, len(names)]``.
        names: What to call the columns, in their order.
    """
    columns = np.ascontiguousarray(matrix.T, dtype=np.float64)
    return pa.table({name: pa.array(column) for name, column in zip(names, columns, strict=True)})


def declared_kinds(table: pa.Table) -> dict[str, FeatureKind]:
    """The kinds that follow from the types of a table's columns.

    A column that somebody made numbers stays numeric, though it counts its rows, and a categorical one
    categorical, though its categories are numbers. The kind of texts is left to be inferred: dates and numbers
    are often read as texts.

    Returns:
        Column → kind; only columns of numbers, truth values and categories are in it.
    """
    kinds = {}
    for field in table.schema:
        if (
            pa.types.is_integer(field.type)
            or pa.types.is_floating(field.type)
            or pa.types.is_decimal(field.type)
        ):
            kinds[field.name] = FeatureKind.NUMERIC
        elif pa.types.is_boolean(field.type):
            kinds[field.name] = FeatureKind.BOOLEAN
        elif pa.types.is_dictionary(field.type):
            kinds[field.name] = FeatureKind.CATEGORICAL
    return kinds


def target_name(y: Any, features: Sequence[str]) -> str:
    """The name of a Series; ``y`` for what has none, or that of a feature."""
    name = getattr(y, "name", None)
    name = name if isinstance(name, str) and name.strip() else "y"
    while name in features:
        name += "_"
    return name


def unnamed(count: int) -> list[str]:
    """Names of columns that have none, as elsewhere in scikit-learn."""
    return [f"x{index}" for index in range(count)]


def _check_names(names: Sequence[str]) -> None:
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise TableError(f"column {position} has no name: name every column")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise TableError(f"more than one column is named {repeated[0]!r}: names must differ")


def _categories(series: Any) -> pa.DictionaryArray:
    """A categorical column of pandas, whose categories may be anything, intervals for one."""
    codes = np.asarray(series.cat.codes)
    texts = pa.array([_text(category) for category in series.cat.categories], type=pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), texts)


def _text(category: object) -> str:
    try:
        return canonical_category(category)
    except ValueError:
        return str(category)
