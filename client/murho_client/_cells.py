"""One column of a user's table as JSON cells: None, truth values, finite numbers and text; dates as ISO 8601 text.

Columns of numbers and of moments stay NumPy arrays until they are sent, so that a long table takes little memory.
pandas, polars and pyarrow are never imported: a column of theirs is recognised by what it is and does.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Integral, Real
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Column", "Faults", "has_inexact", "is_column", "json_cells", "read_column"]


Column: TypeAlias = "NDArray[Any] | list[Any]"
"""`[B]` finite numbers, truth values or moments in UTC with NaN or NaT where a cell is missing, or a list of cells."""
Faults: TypeAlias = list[tuple[int, str]]
"""Row and what is wrong with its cell."""

FORMS = "Give numbers, truth values, texts or dates; None for a missing cell."
INFINITE = "The cell is infinite. Give a finite number, or None if the value is unknown."
BEYOND = "The date is beyond the years 1 to 9999."
MOST_EXACT = 2**53
"""Largest size up to which float64 has all whole numbers."""
_PLAIN: frozenset[type] = frozenset({NoneType, bool, int, str})


def json_cells(column: Column) -> list[Any]:
    """Return the cells of a column, ready for `json.dumps`; NaN and NaT are None."""
    if isinstance(column, list):
        return column
    missing: Iterable[int] = ()
    if column.dtype.kind == "M":
        days, missing = column.astype("datetime64[D]"), np.flatnonzero(np.isnat(column))
        if np.array_equal(days, column, equal_nan=True):
            cells: list[Any] = np.datetime_as_string(days).tolist()
        else:
            cells = [None if moment is None else _date(moment) for moment in column.tolist()]
    else:
        cells = column.tolist()
        if column.dtype.kind == "f":
            missing = np.flatnonzero(np.isnan(column))
    for row in missing:
        cells[row] = None
    return cells


def has_inexact(column: Column) -> bool:
    """Whether whole numbers are among the cells whose last digits float64 does not keep."""
    if isinstance(column, list):
        return any(type(cell) is int and abs(cell) >= MOST_EXACT for cell in column)
    return column.dtype.kind in "iu" and bool(np.any((column >= MOST_EXACT) | (column <= -MOST_EXACT)))


def is_column(value: object) -> bool:
    """Whether a value of a mapping holds one cell a row, in contrast to a single cell."""
    if isinstance(value, (str, bytes, Mapping)) or getattr(value, "ndim", 1) == 0:
        return False
    return hasattr(value, "__len__") or hasattr(value, "__array__")


def read_column(values: Any) -> tuple[Column, Faults]:
    """Return a column as JSON cells, and the cells that can't be used.

    Args:
        values: `[B]` cells in a list, another sequence, a NumPy array or anything that turns into one, or a column of
            pandas, polars or pyarrow.

    Raises:
        TypeError: The values are no column.
    """
    plain = _plain(values)
    if isinstance(plain, np.ndarray):
        if plain.ndim != 1:
            raise TypeError(f"A column has one cell a row, but this one has the shape {list(plain.shape)}.")
        if plain.dtype.kind in "fiubM":
            return _from_array(plain)
        if plain.dtype.kind == "m":  # tolist() would give bare numbers
            raise TypeError("JSON has no word for durations. Give numbers, for example x / numpy.timedelta64(1, 'D').")
        plain = plain.tolist()
    return _from_objects(plain)


def _plain(values: Any) -> Column:
    """Return the column as NumPy array or list of Python objects."""
    if isinstance(values, np.ma.MaskedArray):
        cells = np.asarray(values.astype(object))
        cells[np.ma.getmaskarray(values)] = None
        return cells
    match type(values).__module__.partition(".")[0]:
        case "pandas":
            return _from_pandas(values)
        case "polars":
            numeric = str(values.dtype).startswith(("Int", "UInt", "Float", "Date"))  # dates and moments, too
            numbers = np.asarray(values.to_numpy()) if numeric else None
            whole = "Int" in str(values.dtype)
            return list(values.to_list()) if numbers is None or (whole and _is_rounded(numbers)) else numbers
        case "pyarrow":
            if str(values.type).startswith("dictionary"):
                values = values.cast(values.type.value_type)
            # A moment with a time zone is in UTC inside Arrow.
            numeric = str(values.type).startswith(("int", "uint", "float", "double", "halffloat", "timestamp"))
            numbers = np.asarray(values) if numeric else None
            whole = "int" in str(values.type)
            return list(values.to_pylist()) if numbers is None or (whole and _is_rounded(numbers)) else numbers
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        return list(values)
    if hasattr(values, "__array__"):
        return np.asarray(values)
    raise TypeError(f"A column is a list or an array of cells, not a value of the type {type(values).__name__}.")


def _from_pandas(values: Any) -> Column:
    if not hasattr(values, "iloc"):  # an index, or an array of pandas
        values = sys.modules["pandas"].Series(values)
    dtype = values.dtype
    if isinstance(dtype, np.dtype):
        return np.asarray(values.to_numpy())
    if hasattr(values, "cat"):
        # Some categories have no JSON, such as the intervals of pandas.cut; training reads those as their text, too.
        texts = [_category(category) for category in values.cat.categories] + [None]
        return [texts[code] for code in values.cat.codes.tolist()]
    if getattr(dtype, "tz", None) is not None and dtype.kind == "M":
        return np.asarray(values.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
    if getattr(dtype, "kind", "O") in "iuf":
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan) if values.hasnans else values.to_numpy()
        if dtype.kind == "f" or not _is_rounded(numbers):
            return np.asarray(numbers)
    return list(values.astype(object))


def _is_rounded(numbers: NDArray[Any]) -> bool:
    """Whether whole numbers have become floats, because cells are missing, and have lost digits."""
    return numbers.dtype.kind == "f" and bool(np.any(np.abs(numbers) >= MOST_EXACT))


def _category(category: object) -> Any:
    try:
        return _cell(category)
    except ValueError:
        return str(category)


def _from_array(values: NDArray[Any]) -> tuple[Column, Faults]:
    kind = values.dtype.kind
    if kind == "f":
        if values.dtype.itemsize > 8:
            with np.errstate(over="ignore"):
                values = values.astype(np.float64)
        return values, [(int(row), INFINITE) for row in np.flatnonzero(np.isinf(values))]
    if kind == "M":
        missing = np.isnat(values)
        years = np.where(missing, 0, values.astype("datetime64[Y]").astype(np.int64)) + 1970
        beyond = ~missing & ((years < 1) | (years > 9999))
        moments = np.where(beyond, np.datetime64("NaT"), values)
        return moments.astype("datetime64[us]"), [(int(row), BEYOND) for row in np.flatnonzero(beyond)]
    return values, []


def _from_objects(values: list[Any]) -> tuple[Column, Faults]:
    types = set(map(type, values))
    whole = (value for value in values if type(value) is int)
    if float in types and types <= {float, int, NoneType} and all(abs(value) < MOST_EXACT for value in whole):
        return _from_array(np.array(values, dtype=np.float64))
    if types <= _PLAIN and int not in types:
        return values, []
    cells, faults = [], []
    for row, value in enumerate(values):
        try:
            cells.append(_cell(value))
        except ValueError as error:
            cells.append(None)
            faults.append((row, str(error)))
    return cells, faults


def _cell(value: Any) -> bool | float | str | None:
    """One cell as JSON.

    Raises:
        ValueError: JSON has no word for it; the message is for people.
    """
    kind = type(value).__name__
    if value is None or kind in ("NAType", "NaTType", "MaskedConstant"):  # pandas.NA, pandas.NaT, numpy.ma.masked
        return None
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, str):
        return str.__str__(value)  # the value of an Enum of texts, in place of its name
    if isinstance(value, (Real, Decimal)) and not isinstance(value, np.timedelta64):
        return _number(value)
    if isinstance(value, np.datetime64):
        column, faults = _from_array(np.array([value]))
        if faults:
            raise ValueError(faults[0][1])
        return json_cells(column)[0]  # type: ignore[no-any-return]  # text or None
    if isinstance(value, date):
        try:
            return _date(value)
        except OverflowError:
            raise ValueError(BEYOND) from None
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item") and type(value.item()) is not type(value):
        return _cell(value.item())
    raise ValueError(f"JSON has no word for a cell of the type {kind}. {FORMS}")


def _number(value: Any) -> float | None:
    if isinstance(value, Decimal) and value.is_nan():
        return None
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isnan(number):
        return None
    if math.isinf(number):
        raise ValueError(INFINITE)
    return int(value) if isinstance(value, Integral) else number


def _date(moment: date) -> str:
    """ISO 8601 text in UTC: a date for midnight. A time without an offset is UTC, as in the service."""
    if not isinstance(moment, datetime):
        return moment.isoformat()
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    text = moment.isoformat()
    return text.removesuffix("T00:00:00") if text.endswith("T00:00:00") else f"{text}Z"
