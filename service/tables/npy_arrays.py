"""NumPy arrays: a matrix of numbers in, for models whose features are all numbers or booleans; a structured array out.

NaN is a missing cell.
"""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.predictive.answer_columns import Column, table_columns
from murho.model.predictive.prediction import Unit
from murho.model.tables.schema import FeatureKind
from murho.service.errors import wrong
from murho.service.predict.json_rows import Form, Inputs, pointer, shorten
from murho.service.tables.table_codec import TableCodec, check_cells, number_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.service.predict.answers import Result, Terms

MOST_HEADER_BYTES = 4096
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,  # differs in the letters of names, which a matrix has not
}
_wrong = partial(wrong, "/inputs")
NUMBERS = (FeatureKind.NUMERIC, FeatureKind.BOOLEAN)


class NpyCodec(TableCodec):
    """The codec of NumPy's format."""

    media_type = "application/x-npy"
    unpacks = False
    whole = "an array"

    def rows(self, body: memoryview, terms: Terms) -> Inputs:
        """Return the rows; see `TableCodec.rows`."""
        schema = terms.schema
        names = [feature.name for feature in schema.features]
        others = [feature.name for feature in schema.features if feature.kind not in NUMBERS]
        if others:
            raise _wrong(f"The model has features that are no numbers, such as {others[0]!r}: send another format.")
        head = io.BytesIO(body[: 2 * MOST_HEADER_BYTES])
        try:
            read = HEADERS[np.lib.format.read_magic(head)]
            shape, columnwise, dtype = read(head, max_header_size=MOST_HEADER_BYTES)
        except Exception as error:  # NumPy raises whatever its tokenizer does
            fault = shorten(str(error), 300)
            raise _wrong(f"The body is no array in NumPy's format, as numpy.save writes it: {fault}.") from None
        if dtype.kind not in "fiub" or dtype.itemsize > 8:
            raise _wrong(f"The array holds {dtype}; numbers of at most 64 bits are expected.")
        if len(shape) != 2 or shape[1] != len(names):
            raise _wrong(
                f"The array has the shape {list(shape)}; this model takes [rows, {len(names)}], in schema order."
            )
        data, expected = body[head.tell() :], shape[0] * shape[1] * dtype.itemsize
        if len(data) != expected:  # or else a header could make it allocate any memory
            raise _wrong(
                f"The array has {len(data)} bytes after its header, where the shape {list(shape)} takes {expected}."
            )
        check_cells(shape[0], terms)
        matrix = np.frombuffer(data, dtype).reshape(shape, order="F" if columnwise else "C")
        columns = number_columns(schema, matrix, lambda place, row: pointer("inputs", row, place))
        return Inputs(Form.MATRIX, columns, len(matrix))

    def body(self, result: Result) -> list[bytes]:
        """Return a structured array `[B]` with a field for each column of the other formats.

        `draws` is `[S]`, or `[S, C]`; a class is a text; a set of classes is `[C]`, whether each class is in it.
        """
        prediction = result.prediction
        columns = {
            name: _cells(column, prediction.classes or ())
            for name, column in table_columns(prediction, result.options).items()
        }
        if result.ids is not None:
            columns = {"id": np.array([key or "" for key in result.ids]), **columns}
        array = np.empty(len(prediction), [(name, each.dtype, each.shape[1:]) for name, each in columns.items()])
        for name, values in columns.items():
            array[name] = values
        sink = io.BytesIO()
        try:
            np.lib.format.write_array(sink, array, version=(1, 0), allow_pickle=False)
        except ValueError:  # names of classes are too many, or not Latin-1
            np.lib.format.write_array(sink, array, version=(3, 0), allow_pickle=False)
        return [sink.getvalue()]


def _cells(column: Column, classes: tuple[str, ...]) -> NDArray[Any]:
    """Return the cells of a column as an array without objects."""
    if column.unit is Unit.CLASS_SET:
        return np.zeros((column.rows, len(classes)), dtype=bool) if column.values is None else column.values
    cells = column.cells(classes)
    return cells.astype(np.str_) if column.unit is Unit.CLASS else cells
