"""The user's table as columns of JSON cells.

A table is a dict of columns, one record, a list of records, a NumPy matrix, a data frame of pandas, Modin or polars, or
an Arrow table. None of their packages has to be installed. Other frames come through Arrow's C stream interface, which
all of them have but pandas and Modin; narwhals, which asks for unique names that are checked here with better words,
would be one more package in somebody else's environment.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from murho_client._cells import Column, is_column, json_cells, read_column
from murho_client._errors import InvalidInput, Problem

__all__ = ["Batch", "Labels", "to_batch"]


Labels: TypeAlias = Any
"""The labels of rows `[B]`, indexed as NumPy arrays are: the index of a pandas data frame, or an array; or None."""
MAX_PROBLEMS = 20
FORMS = (
    "Give a dict of columns, a dict or a list of dicts with one value a feature, a NumPy matrix [rows, features], "
    "a data frame of pandas or polars, or an Arrow table."
)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows, ready to be sent.

    Attributes:
        names: The columns' names; None for a matrix without, whose columns are the features in schema order.
        columns: The columns, `[B]` cells each.
        rows: The number of rows, B.
        labels: The rows' labels in the data as given; None where these are the row numbers.
    """

    names: tuple[str, ...] | None
    columns: list[Column]
    rows: int
    labels: Labels = None

    def slice(self, start: int, stop: int) -> Batch:
        """Return the rows from `start` to before `stop`."""
        columns = [column[start:stop] for column in self.columns]
        labels = None if self.labels is None else self.labels[start:stop]
        return Batch(self.names, columns, len(range(self.rows)[start:stop]), labels)

    def inputs(self) -> dict[str, list[Any]] | list[list[Any]]:
        """Return the rows as the `inputs` of a request: columns by name, or a list of rows if there are no names."""
        cells = map(json_cells, self.columns)
        if self.names is None:
            return [list(row) for row in zip(*cells, strict=True)]
        return dict(zip(self.names, cells, strict=True))

    def problem(
        self, message: str, row: int, feature: str | None, first: int = 0, pointer: str | None = None
    ) -> Problem:
        """Say what is wrong with a cell, in terms of the data as given; this batch begins with the row `first`."""
        label = first + row if self.labels is None else self.labels[row]
        label = label.item() if isinstance(label, np.number) else label  # whose repr names its type
        return Problem(message, first + row, label, feature, pointer)


def to_batch(data: object) -> Batch:
    """Return the rows of a table.

    None, NaN, NaT, `pandas.NA` and Arrow nulls are missing cells. Dates are written as ISO 8601 in UTC.

    Args:
        data: The table; see the module.

    Raises:
        InvalidInput: There are no rows, the columns differ in length or share a name, a number is infinite, or JSON has
            no word for a cell. The problems name row and column.
    """
    try:
        names, columns, labels = _table(data)
    except (TypeError, RuntimeError) as error:  # torch raises the second for a tensor that needs a gradient
        raise InvalidInput([Problem(str(error))]) from None
    shown = [f"column {position}" for position in range(len(columns))] if names is None else names
    if repeated := [name for name, count in Counter(shown).items() if count > 1]:
        raise InvalidInput(
            Problem("There is more than one column of this name. Names must differ.", feature=name) for name in repeated
        )
    read: list[Column] = []
    faults: list[tuple[int, str, str]] = []
    for name, column in zip(shown, columns, strict=True):
        try:
            cells, refused = read_column(column)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidInput([Problem(str(error), feature=name)]) from None
        read.append(cells)
        faults.extend((row, name, message) for row, message in refused)
    lengths = list(map(len, read))
    if not any(lengths):
        raise InvalidInput([Problem("The data have no rows. Give at least one row.")])
    if len(set(lengths)) > 1:
        raise InvalidInput(
            Problem(f"The column has {length} values, but {shown[0]!r} has {lengths[0]}.", feature=name)
            for name, length in zip(shown, lengths, strict=True)
            if length != lengths[0]
        )
    batch = Batch(None if names is None else tuple(names), read, lengths[0], labels)
    if faults:
        faults.sort(key=lambda fault: fault[0])
        problems = [batch.problem(message, row, name) for row, name, message in faults[:MAX_PROBLEMS]]
        raise InvalidInput(problems, len(faults))
    return batch


_Table: TypeAlias = tuple[list[str] | None, list[Any], Labels]


def _table(data: Any) -> _Table:
    """Names, raw columns and labels of a table.

    Raises:
        TypeError: The data are no table; the message says what is.
    """
    if hasattr(data, "modin"):
        data = data.modin.to_pandas()
    for package, read in (("pandas", _from_pandas), ("polars", _from_polars), ("pyarrow", _from_arrow)):
        if type(data).__module__.partition(".")[0] == package:
            return read(data)
    if isinstance(data, Mapping):
        return _from_mapping(data)
    if hasattr(data, "__arrow_c_stream__") and "pyarrow" in sys.modules:
        return _from_arrow(sys.modules["pyarrow"].table(data))
    if hasattr(data, "__array__"):
        return _from_array(np.asanyarray(data))
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise TypeError(f"The data have the type {type(data).__name__}. {FORMS}")
    return _from_rows(list(data))


def _from_pandas(frame: Any) -> _Table:
    if not hasattr(frame, "iloc") or not hasattr(frame, "columns"):
        raise TypeError(f"The data are a {type(frame).__name__} of pandas. Give a data frame: of a row x.to_frame().T.")
    header = frame.columns
    if header.nlevels > 1:
        raise TypeError("The columns of the data frame have several levels. Give each column one name.")
    # pandas numbers the columns of a bare matrix from 0, and rows without labels.
    bare = len(header) > 0 and _is_counted(header)
    columns = [frame.iloc[:, position] for position in range(len(header))]
    counted = _is_counted(frame.index) and frame.index.name is None
    return None if bare else [str(name) for name in header], columns, None if counted else frame.index


def _is_counted(index: Any) -> bool:
    return type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)


def _from_polars(frame: Any) -> _Table:
    if not hasattr(frame, "get_columns"):
        advice = "x.collect()" if hasattr(frame, "collect") else "x.to_frame()"
        raise TypeError(f"The data have the type {type(frame).__name__} of polars. Give a data frame: {advice}.")
    return list(frame.columns), list(frame.get_columns()), None


def _from_arrow(table: Any) -> _Table:
    if not hasattr(table, "column_names"):
        if not hasattr(table, "read_all"):
            raise TypeError(
                f"The data have the type {type(table).__name__} of pyarrow. Give a table or a record batch."
            )
        table = table.read_all()
    return list(table.column_names), [table.column(at) for at in range(len(table.column_names))], None


def _from_array(array: Any) -> _Table:
    if array.dtype.names is not None and array.ndim == 1:
        return list(array.dtype.names), [array[name] for name in array.dtype.names], None
    if array.ndim != 2:
        advice = " For a single row, give x.reshape(1, -1)." if array.ndim == 1 else ""
        raise TypeError(f"A matrix is [rows, features], but the array has the shape {list(array.shape)}.{advice}")
    return None, list(array.T), None


def _from_mapping(data: Mapping[Any, Any]) -> _Table:
    names = [str(name) for name in data]
    several = [is_column(value) for value in data.values()]
    if all(several):
        return names, list(data.values()), None
    if not any(several):
        return names, [[value] for value in data.values()], None
    column, cell = names[several.index(True)], names[several.index(False)]
    raise TypeError(f"{column!r} is a column, but {cell!r} is a single value. Give every feature a list, or none.")


def _from_rows(rows: list[Any]) -> _Table:
    """Record (dicts or named tuples), or rows without names."""
    rows = [row._asdict() if hasattr(row, "_asdict") else row for row in rows]
    if rows and isinstance(rows[0], Mapping):
        return _from_records(rows)
    for number, row in enumerate(rows):
        if isinstance(row, (Mapping, Iterator)) or not is_column(row):
            found = f"row {number} has the type {type(row).__name__}"
            raise TypeError(
                f"Expected dicts or lists of cells, but {found}. A single row goes in a list, too: [[1, 2]]."
            )
        if len(row) != len(rows[0]):
            message = f"The row has {len(row)} values, but row 0 has {len(rows[0])}."
            raise InvalidInput([Problem(message, number, number)])
    return None, [list(column) for column in zip(*rows, strict=True)], None


def _from_records(rows: list[Any]) -> _Table:
    names = list(dict.fromkeys(name for row in rows if isinstance(row, Mapping) for name in row))
    problems: list[Problem] = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            message = f"Expected a dict, as the first row is, not a value of the type {type(row).__name__}."
            problems.append(Problem(message, number, number))
        elif len(row) < len(names):
            absent = "The row doesn't have this feature, but others do. Give None if the value is unknown."
            problems += [Problem(absent, number, number, str(name)) for name in names if name not in row]
    if problems:
        raise InvalidInput(problems[:MAX_PROBLEMS], len(problems))
    return [str(name) for name in names], [[row[name] for row in rows] for name in names], None
