"""NumPy arrays as bodies: a matrix of numbers in, a structured array out. Options come as query parameters."""

from __future__ import annotations

import ast
import io
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.errors import Problem
from murho.model.predictive.answer_columns import table_columns
from murho.model.predictive.prediction import Unit
from murho.model.tables.schema import FeatureKind
from murho.service.errors import BadInputError
from murho.service.predict.answer_columns import fact_headers
from murho.service.predict.cells import explain_cell
from murho.service.predict.codec import Asked
from murho.service.predict.envelope import predict_options
from murho.service.predict.inputs import Form, Inputs, check_rows
from murho.service.predict.problems import Problems, pointer, shorten
from murho.service.predict.query_options import parse_query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from murho.model.predictive.answer_columns import Column
    from murho.model.predictive.prediction import PredictOptions
    from murho.model.tables.schema import Feature, Schema
    from murho.service.predict.codec import Answered
    from murho.service.settings import Settings
    from murho.service.tables.block_codec import BlockCodec

__all__ = ["NpyCodec"]

MAGIC = b"\x93NUMPY"
SIZE_BYTES = {b"\1\0": 2, b"\2\0": 4, b"\3\0": 4}
"""Of each version of the format: the bytes that say how long the header is."""
MOST_HEADER_BYTES = 4096
NUMBER = re.compile(r"[<>|=]?(f[248]|[iu][1248]|b1)")
NUMBERS = (FeatureKind.NUMERIC, FeatureKind.BOOLEAN)


class NpyCodec:
    """The codec of `application/x-npy`, for models whose features are all numbers or booleans; see `Codec`."""

    media_type = "application/x-npy"
    blocks: BlockCodec | None = None
    unpacks = False

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
            with np.errstate(invalid="ignore"):  # of NaNs that signal
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
    descr, columnwise, shape, start = _header(body)
    if not isinstance(descr, str) or not NUMBER.fullmatch(descr):
        raise _no_matrix(f"holds {shorten(str(descr))}; numbers of at most 64 bits are expected")
    if len(shape) != 2 or shape[1] != width:
        found = shorten(str(list(shape)))
        raise _no_matrix(f"has the shape {found}; this model takes [rows, {width}], features in schema order")
    dtype, data = np.dtype(descr), memoryview(body)[start:]
    expected = shape[0] * width * dtype.itemsize
    if len(data) != expected:
        raise _no_matrix(f"has {len(data)} bytes after its header, where the shape {list(shape)} takes {expected}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if columnwise else "C")


def _header(body: bytes) -> tuple[object, bool, tuple[int, ...], int]:
    """Returns what the header says of type, order and shape, and where the numbers begin.

    It is read here, and not by NumPy, which raises whatever its tokenizer does.

    Raises:
        BadInputError: There is no such header.
    """
    size_bytes = SIZE_BYTES.get(body[len(MAGIC) : len(MAGIC) + 2])
    if size_bytes is None or not body.startswith(MAGIC):
        raise _no_matrix("is no array in NumPy's format: it doesn't begin as numpy.save begins")
    start = len(MAGIC) + 2 + size_bytes
    stop = start + int.from_bytes(body[start - size_bytes : start], "little")
    if not start < stop <= min(len(body), start + MOST_HEADER_BYTES):
        raise _no_matrix(f"is no array in NumPy's format: its header should have at most {MOST_HEADER_BYTES} bytes")
    try:
        header = ast.literal_eval(body[start:stop].decode().strip())
        descr, columnwise, shape = (header[key] for key in ("descr", "fortran_order", "shape"))
    except (ValueError, SyntaxError, LookupError, TypeError, MemoryError, RecursionError):
        raise _no_matrix("is no array in NumPy's format: its header can't be read") from None
    whole = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    if not isinstance(columnwise, bool) or not whole:
        raise _no_matrix("is no array in NumPy's format: its header has no order and shape as numpy.save writes them")
    return descr, columnwise, shape, stop


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
