"""Answers as tables: the lines of CSV, and Arrow tables."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from murho.model.predictive.answer_columns import table_columns
from murho.model.predictive.prediction import Unit
from murho.model.tables.columns import float_array, number_array, text_array
from murho.model.tables.writers import as_csv
from murho.service.predict.answer_columns import answer_columns, answer_facts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.predictive.answer_columns import Column
    from murho.service.predict.codec import Answered

__all__ = ["FACTS", "arrow_table", "csv_text"]

FACTS = b"murho"
"""Key of the schema's metadata that has the facts of an answer, as JSON."""


def csv_text(answered: Answered, *, header: bool = True) -> bytes:
    """Returns the answer `[B]` as CSV, one line a row; a list of classes is JSON."""
    columns = {name: _csv_column(values) for name, values in answer_columns(answered).items()}
    return as_csv(pa.table(columns), header=header)


def _csv_column(values: NDArray[Any]) -> pa.Array:
    """Returns a column whose cells CSV has a text for."""
    if values.dtype != object:
        return number_array(values)
    return text_array([json.dumps(cell, ensure_ascii=False) if isinstance(cell, list) else cell for cell in values])


def arrow_table(answered: Answered) -> pa.Table:
    """Returns the answer `[B]` as a table, with `draws` as lists, and its facts in the metadata of the schema."""
    classes = answered.prediction.classes or ()
    columns = table_columns(answered.prediction, answered.options)
    arrays = {name: _arrow_column(column, classes) for name, column in columns.items()}
    return pa.table(arrays).replace_schema_metadata({FACTS: orjson.dumps(answer_facts(answered))})


def _arrow_column(column: Column, classes: tuple[str, ...]) -> pa.Array:
    values = column.cells(classes)
    if column.unit is Unit.CLASS:
        return text_array(values.tolist())
    if column.unit is Unit.CLASS_SET:
        return _text_lists(values.tolist())
    if values.ndim == 1:
        return float_array(values)  # NaN, which stands for none, becomes null
    if not values.shape[1]:
        return _empty_lists(len(values), values.ndim - 1)
    lists = number_array(values.ravel())
    for length in reversed(values.shape[1:]):
        lists = pa.FixedSizeListArray.from_arrays(lists, length)
    return lists


def _text_lists(lists: list[list[str] | None]) -> pa.Array:
    given = [texts or [] for texts in lists]
    ends = number_array(np.cumsum([0, *map(len, given)], dtype=np.int32))
    present = number_array(np.zeros(len(lists)), np.array([texts is not None for texts in lists], dtype=np.bool_))
    buffers = [present.buffers()[0], ends.buffers()[1]]
    texts = text_array(list(chain.from_iterable(given)))
    return pa.Array.from_buffers(pa.list_(pa.string()), len(lists), buffers, children=[texts])


def _empty_lists(rows: int, depth: int) -> pa.Array:
    kind = pa.float64()
    for _ in range(depth - 1):
        kind = pa.list_(kind)
    ends = pa.py_buffer(np.zeros(rows + 1, np.int32))
    return pa.Array.from_buffers(pa.list_(kind), rows, [None, ends], children=[pa.nulls(0, kind)])
