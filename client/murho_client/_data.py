"""The user's table as columns of JSON cells.

A table is a dict of columns, one record, a list of records, a NumPy matrix, a data frame of pandas or polars, or an
Arrow table. None of their packages has to be installed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from murho_client._cells import ArrayColumn, is_column, read_column
from murho_client._errors import InvalidInput, Problem

__all__ = ["MAX_PROBLEMS", "Batch", "Labels", "to_batch"]

MAX_PROBLEMS = 20
FORMS = (
    "Give a dict of columns, a dict or a list of dicts with one value a feature, a NumPy matrix [rows, features], "
    "a data frame of pandas or polars, or an Arrow table."
)


class Labels(Sequence[Any]):
    """The labels of rows: the index of a pandas data frame.

    A pandas index has no truth value and compares by element, so it isn't handed around as it is.

    Attributes:
        pandas_index: The index.
    """

    def __init__(self, index: Any) -> None:
        self.pandas_index = index

    def __len__(self) -> int:
        return len(self.pandas_index)

    @overload
    def __getitem__(self, key: int) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> Labels: ...
    def __getitem__(self, key: int | slice) -> Any:
        found = self.pandas_index[key]
        return Labels(found) if isinstance(key, slice) else found


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows, ready to be sent.

    Attributes:
        names: The columns' names; None for a matrix without, whose columns are the features in schema order.
        columns: One sequence of JSON cells `[B]` per column.
        rows: The number of rows, B.
        labels: The rows' labels in the data as given; None where these are the row numbers.
    """

    names: tuple[str, ...] | None
    columns: list[Sequence[Any]]
    rows: int
    labels: Sequence[Any] | None = None

    def slice(self, start: int, stop: int) -> Batch:
        """The rows from `start` to before `stop`."""
        columns = [column[start:stop] for column in self.columns]
        labels = None if self.labels is None else self.labels[start:stop]
        return Batch(self.names, columns, len(range(self.rows)[start:stop]), labels)

    def inputs(self) -> dict[str, list[Any]] | list[list[Any]]:
        """The rows as the `inputs` of a request: columns by name, or a list of rows if there are no names."""
        cells = [column.tolist() if isinstance(column, ArrayColumn) else list(column) for column in self.columns]
        if self.names is None:
            return [list(row) for row in zip(*cells, strict=True)]
        return dict(zip(self.names, cells, strict=True))

    def problem(self, message: str, row: int | None = None, feature: str | None = None) -> Problem:
        """What is wrong with a cell, a row or a column, in terms of the data as given."""
        if row is None:
            return Problem(message, feature=feature)
        return Problem(message, row, row if self.labels is None else self.labels[row], feature)


def to_batch(data: object) -> Batch:
    """The rows of a table.

    None, NaN, NaT, `pandas.NA` and Arrow nulls are missing cells. Dates are written as ISO 8601 in UTC.

    Args:
        data: The table; see the module.

    Raises:
        InvalidInput: There are no rows, the columns differ in length or share a name, a number is infinite, or JSON has
            no word for a cell. The problems name row and column.
    """
    if isinstance(data, Batch):
        return data
    try:
        names, columns, labels = _table(data)
    except (TypeError, RuntimeError) as error:  # torch raises the second for a tensor that needs a gradient
        raise InvalidInput([Problem(str(error))]) from None
    if names is not None:
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise InvalidInput(
                Problem("There is more than one column of this name. Names must differ.", feature=name)
                for name in repeated
            )
    return _batch(names, columns, labels)


def _batch(names: list[str] | None, columns: list[Any], labels: Sequence[Any] | None) -> Batch:
    """The batch of the raw columns, with all their cells checked."""
    read: list[Sequence[Any]] = []
    faults: list[tuple[int, str, str]] = []
    for position, column in enumerate(columns):
        name = f"column {position}" if names is None else names[position]
        try:
            cells, refused = read_column(column)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidInput([Problem(str(error), feature=name)]) from None
        read.append(cells)
        faults.extend((row, name, message) for row, message in refused)
    lengths = [len(cells) for cells in read]
    if not any(lengths):
        raise InvalidInput([Problem("The data have no rows. Give at least one row.")])
    if len(set(lengths)) > 1:
        first = 0 if names is None else repr(names[0])
        raise InvalidInput(
            Problem(f"The column has {length} values, but {first} has {lengths[0]}.", feature=name)
            for name, length in zip(names or map(str, range(len(read))), lengths, strict=True)
            if length != lengths[0]
        )
    batch = Batch(None if names is None else tuple(names), read, lengths[0], labels)
    if faults:
        faults.sort(key=lambda fault: fault[0])
        problems = [batch.problem(message, row, name) for row, name, message in faults[:MAX_PROBLEMS]]
        raise InvalidInput(problems, len(faults))
    return batch


_Table = tuple[list[str] | None, list[Any], Sequence[Any] | None]


def _table(data: Any) -> _Table:
    """Names, raw columns and labels of a table.

    Raises:
        TypeError: The data are no table; the message says what is.
    """
    for package, read in (("pandas", _from_pandas), ("polars", _from_polars), ("pyarrow", _from_arrow)):
        if type(data).__module__.partition(".")[0] == package:
            return read(data)
    if isinstance(data, np.ndarray):
        return _from_array(data)
    if isinstance(data, Mapping):
        return _from_mapping(data)
    if hasattr(data, "__arrow_c_stream__") and "pyarrow" in sys.modules:
        return _from_arrow(sys.modules["pyarrow"].table(data))
    if hasattr(data, "__array__"):
        return _from_array(np.asarray(data))
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise TypeError(f"The data have the type {type(data).__name__}. {FORMS}")
    return _from_rows(list(data))


def _from_pandas(frame: Any) -> _Table:
    if not hasattr(frame, "iloc") or not hasattr(frame, "columns"):
        raise TypeError(f"The data have the type {type(frame).__name__} of pandas. Give a data frame: x.to_frame().")
    header = frame.columns
    if getattr(header, "nlevels", 1) > 1:
        raise TypeError("The columns of the data frame have several levels. Give each column one name.")
    # pandas numbers the columns of a bare matrix from 0.
    bare = type(header).__name__ == "RangeIndex" and (header.start, header.step) == (0, 1) and len(header) > 0
    index = frame.index
    counted = type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1) and index.name is None
    columns = [frame.iloc[:, position] for position in range(len(header))]
    return None if bare else [str(name) for name in header], columns, None if counted else Labels(index)


def _from_polars(frame: Any) -> _Table:
    if hasattr(frame, "collect") and not hasattr(frame, "get_columns"):
        raise TypeError("A LazyFrame has no rows yet. Give frame.collect().")
    if not hasattr(frame, "get_columns"):
        raise TypeError(f"The data have the type {type(frame).__name__} of polars. Give a data frame: x.to_frame().")
    return list(frame.columns), list(frame.get_columns()), None


def _from_arrow(table: Any) -> _Table:
    if not hasattr(table, "column_names"):
        if not hasattr(table, "__arrow_c_stream__") or not hasattr(table, "read_all"):
            raise TypeError(
                f"The data have the type {type(table).__name__} of pyarrow. Give a table or a record batch."
            )
        table = table.read_all()
    columns = [table.column(position) for position in range(len(table.column_names))]
    return list(table.column_names), columns, None


def _from_array(array: Any) -> _Table:
    if array.dtype.names is not None and array.ndim == 1:
        return list(array.dtype.names), [array[name] for name in array.dtype.names], None
    if array.ndim != 2:
        advice = " For a single row, give x.reshape(1, -1)." if array.ndim == 1 else ""
        raise TypeError(f"A matrix is [rows, features], but the array has the shape {list(array.shape)}.{advice}")
    return None, [array[:, position] for position in range(array.shape[1])], None


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
    """Records (dicts or named tuples), or rows without names."""
    if not rows:
        return None, [], None
    rows = [row._asdict() if hasattr(row, "_asdict") else row for row in rows]
    if isinstance(rows[0], Mapping):
        return _from_records(rows)
    for number, row in enumerate(rows):
        if isinstance(row, (Mapping, Iterator)) or not is_column(row):
            found = f"row {number} has the type {type(row).__name__}"
            raise TypeError(
                f"Expected dicts or lists of cells, but {found}. A single row goes in a list, too: [[1, 2]]."
            )
    widths = [len(row) for row in rows]
    uneven = [(number, width) for number, width in enumerate(widths) if width != widths[0]]
    if uneven:
        problems = [
            Problem(f"The row has {width} values, but row 0 has {widths[0]}.", number, number)
            for number, width in uneven[:MAX_PROBLEMS]
        ]
        raise InvalidInput(problems, len(uneven))
    return None, [list(column) for column in zip(*rows, strict=True)], None


def _from_records(rows: list[Any]) -> _Table:
    names = list(dict.fromkeys(name for row in rows if isinstance(row, Mapping) for name in row))
    problems: list[Problem] = []
    total = 0
    found: list[tuple[str | None, str]]
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            found = [(None, f"Expected a dict, as the first row is, not a value of the type {type(row).__name__}.")]
        elif len(row) == len(names):
            continue
        else:
            absent = "The row doesn't have this feature, but others do. Give None if the value is unknown."
            found = [(str(name), absent) for name in names if name not in row]
        total += len(found)
        if len(problems) < MAX_PROBLEMS:
            problems.extend(Problem(message, number, number, name) for name, message in found)
    if problems:
        raise InvalidInput(problems[:MAX_PROBLEMS], total)
    return [str(name) for name in names], [[row[name] for row in rows] for name in names], None
