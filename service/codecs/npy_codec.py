"""NumPy arrays as bodies: a matrix of numbers in, a structured array out. Options come as query parameters."""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.schema import FeatureKind
from murho.model.engines.answer_columns import table_columns
from murho.model.engines.answer_fields import Unit
from murho.model.errors import Problem
from murho.service.codecs.answer_columns import fact_headers
from murho.service.codecs.cells import explain_cell
from murho.service.codecs.codec import Asked
from murho.service.codecs.envelope import predict_options
from murho.service.codecs.inputs import Form, Inputs, check_rows
from murho.service.codecs.problems import Problems, pointer
from murho.service.codecs.query_options import parse_query
from murho.service.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from murho.model.data.schema import Feature, Schema
    from murho.model.engines.answer_columns import Column
    from murho.model.engines.prediction import PredictOptions
    from murho.service.codecs.block_codec import BlockCodec
    from murho.service.codecs.codec import Answered
    from murho.service.settings import Settings

__all__ = ["NpyCodec"]

NUMBERS = (FeatureKind.NUMERIC, FeatureKind.BOOLEAN)


class NpyCodec:
    """The codec of `application/x-npy`, for models whose features are all numbers or booleans; see `Codec`."""

    media_type = "application/x-npy"
    blocks: BlockCodec | None = None

    def reads(self, media_type: str) -> bool:
        """Returns whether the media type is this codec's."""
        return media_type == self.media_type

    def decode(self, body: bytes, query: Mapping[str, str], schema: Schema, settings: Settings) -> Asked:
        """Returns the rows and the options of a request; NaN is a missing cell. See `Codec.decode`."""
        asked = parse_query(query)
        options = predict_options(asked, settings.samples, settings.max_samples, schema.target)
        others = [feature.name for feature in schema.features if feature.kind not in NUMBERS]
        if others:
            message = f"The model has features that are no numbers, such as {others[0]!r}: send another format."
            raise BadInputError([Problem("/inputs", message)])
        matrix = _matrix(body, len(schema.features))
        check_rows(len(matrix), settings.max_rows)
        problems = Problems()
        if not len(matrix):
            problems.add(0, 0, "/inputs", "The matrix has no rows; at least one row is needed.")
        columns: dict[str, NDArray[Any]] = {}
        for position, feature in enumerate(schema.features):
            column = np.ascontiguousarray(matrix[:, position], dtype=np.float64)
            columns[feature.name] = column
            problems.add_rows(
                _refused(feature, column).nonzero()[0].tolist(),
                position,
                partial(_pointer, position),
                partial(_explain, feature, column),
            )
        problems.raise_any()
        names = tuple(feature.name for feature in schema.features)
        return Asked(Inputs(Form.MATRIX, columns, len(matrix), names), options, asked.timeout)

    def require_place(self, options: PredictOptions) -> None:
        """Accepts all options."""

    def encode(self, answered: Answered) -> list[bytes]:
        """Returns a structured array `[B]` with a field for each column of the other formats.

        `draws` is `[S]`, or `[S, C]`; a class is a text; a set of classes is `[C]`, whether each class is in it.
        """
        prediction = answered.prediction
        classes = prediction.classes or ()
        columns = {
            name: _cells(column, classes) for name, column in table_columns(prediction, answered.options).items()
        }
        fields: list[Any] = [(name, values.dtype, values.shape[1:]) for name, values in columns.items()]
        array = np.empty(len(prediction), dtype=fields)
        for name, values in columns.items():
            array[name] = values
        return [_written(array)]

    def headers(self, answered: Answered) -> Mapping[str, str]:
        """Returns the facts of the answer."""
        return fact_headers(answered)


def _cells(column: Column, classes: tuple[str, ...]) -> NDArray[Any]:
    """Returns the cells of a column as an array without objects."""
    if column.unit is Unit.CLASS_SET:
        return np.zeros((column.rows, len(classes)), dtype=bool) if column.values is None else column.values
    cells = column.cells(classes)
    return cells.astype(np.str_) if column.unit is Unit.CLASS else cells


def _written(array: NDArray[Any]) -> bytes:
    """Returns an array in NumPy's format; in its version 3 only where names of classes are too many, or not Latin-1."""
    sink = io.BytesIO()
    try:
        np.lib.format.write_array(sink, array, version=(1, 0), allow_pickle=False)
    except ValueError:
        np.lib.format.write_array(sink, array, version=(3, 0), allow_pickle=False)
    return sink.getvalue()


def _matrix(body: bytes, width: int) -> NDArray[Any]:
    """Returns the matrix in a body, as a view. The header can't make it allocate memory.

    Raises:
        BadInputError: The body is no array of numbers of this width.
    """
    stream = io.BytesIO(body)
    try:
        major, _ = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, columnwise, dtype = read(stream)
    except ValueError as error:
        raise _no_matrix(f"is no array in NumPy's format: {error}") from None
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise _no_matrix(f"holds {dtype}; numbers are expected")
    if len(shape) != 2 or shape[1] != width:
        raise _no_matrix(f"has the shape {list(shape)}; this model takes [rows, {width}], features in schema order")
    data = body[stream.tell() :]
    expected = shape[0] * width * dtype.itemsize
    if len(data) != expected:
        raise _no_matrix(f"has {len(data)} bytes after its header, where the shape {list(shape)} takes {expected}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if columnwise else "C")


def _no_matrix(fault: str) -> BadInputError:
    return BadInputError([Problem("/inputs", f"The body {fault}.")])


def _refused(feature: Feature, column: NDArray[np.float64]) -> NDArray[np.bool_]:
    refused = np.isinf(column)
    if not feature.accepts_missing:
        refused |= np.isnan(column)
    if feature.kind is FeatureKind.BOOLEAN:
        refused |= ~(np.isnan(column) | (column == 0.0) | (column == 1.0))
    return np.asarray(refused)


def _pointer(position: int, row: int) -> str:
    return pointer("inputs", row, position)


def _explain(feature: Feature, column: NDArray[np.float64], row: int) -> str:
    if np.isnan(column[row]):
        return explain_cell(feature, None)
    expected = "0 or 1" if feature.kind is FeatureKind.BOOLEAN else "a finite number"
    return f"Expected {expected}, not {column[row]:g}."
