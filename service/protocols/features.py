"""From tensors to the features of a model: one matrix `x` if all of them are numbers, or one tensor a feature."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.errors import Problem
from murho.model.tables.schema import FeatureKind
from murho.service.errors import BadInputError
from murho.service.predict.problems import Problems, pointer, shorten
from murho.service.predict.rows import ABSENT, Form, Inputs, check_rows, decode_cells, explain_cell, explain_unknown
from murho.service.protocols.tensors import wrong

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.tables.schema import Feature, Schema
    from murho.service.protocols.tensors import Tensor

__all__ = ["FEATURE_DATATYPES", "MATRIX", "MATRIX_DATATYPE", "check_inputs", "read_features", "takes_matrix"]

MATRIX = "x"
"""The name of the input that has all features."""
MATRIX_DATATYPE = "FP64"
FEATURE_DATATYPES = {
    FeatureKind.NUMERIC: "FP64",
    FeatureKind.BOOLEAN: "BOOL",
    FeatureKind.DATE: "BYTES",
    FeatureKind.CATEGORICAL: "BYTES",
}
"""The datatype that metadata give for a feature; others are read too."""
KINDS = {
    FeatureKind.NUMERIC: ("iuf", "a datatype of numbers, such as FP64"),
    FeatureKind.BOOLEAN: ("biuf", "BOOL, or a datatype of numbers"),
    FeatureKind.DATE: ("O", "BYTES: ISO 8601 dates such as 2024-05-31"),
    FeatureKind.CATEGORICAL: ("Oiuf", "BYTES, or a datatype of numbers"),
}
"""Of each kind of feature: the kinds of NumPy's datatypes that it can be read from, and what they are called."""
OF_NUMBERS = (FeatureKind.NUMERIC, FeatureKind.BOOLEAN)


class _Matrix(Inputs):
    """The rows of a request that are one tensor."""

    __slots__ = ()

    def pointer(self, row: int, feature: str) -> str:
        """Returns the pointer to a cell: to the element of the tensor."""
        return _of_matrix(self.names.index(feature), row)


def takes_matrix(schema: Schema) -> bool:
    """Returns whether all features of a model are numbers, so that one matrix can have them."""
    return all(feature.kind in OF_NUMBERS for feature in schema.features)


def check_inputs(shapes: Sequence[tuple[str, tuple[int, ...]]], schema: Schema, max_rows: int) -> int:
    """Checks names and shapes of the inputs, before their elements are read; returns the number of rows.

    Raises:
        BadInputError: An input is unknown, or there twice, or a feature is absent, or the shapes don't fit.
        TooLargeError: There are more than `max_rows` rows.
    """
    names = [name for name, _ in shapes]
    problems = Problems()
    matrix = _is_matrix(names, schema)
    if matrix:
        _check_matrix(shapes[0][1], schema)
    else:
        _check_names(names, schema, problems)
    first, (rows, *_) = shapes[0]
    for position, (name, shape) in enumerate(shapes):
        place = pointer("inputs", name)
        if shape[0] != rows:
            message = f"The shape is {list(shape)}, and {shorten(first)!r} has {rows} rows."
            problems.add(0, position, place, message)
        elif not matrix and len(shape) > 1 and shape[1] != 1:
            problems.add(0, position, place, f"The shape is {list(shape)}; a feature takes [{rows}] or [{rows}, 1].")
    problems.raise_any()
    check_rows(rows, max_rows)
    if not rows:
        raise BadInputError([Problem("/inputs", "The tensors have no rows; at least one row is needed.")])
    return rows


def read_features(tensors: Sequence[Tensor], rows: int, schema: Schema) -> Inputs:
    """Returns the rows of a request whose inputs `check_inputs` has accepted, as canonical columns.

    Raises:
        BadInputError: An input has a datatype that its feature can't have, or an element can't be used.
    """
    names = tuple(feature.name for feature in schema.features)
    problems = Problems()
    columns: dict[str, NDArray[Any]] = {}
    if _is_matrix([tensor.name for tensor in tensors], schema):
        (tensor,) = tensors
        if tensor.values.dtype.kind not in "iuf":
            raise wrong(("inputs", MATRIX), f"The datatype is {tensor.datatype}; FP64 is expected, or other numbers.")
        matrix = tensor.values.reshape(rows, len(names))
        for position, feature in enumerate(schema.features):
            column = _float64(matrix[:, position])
            columns[feature.name] = _numbers(feature, column, position, partial(_of_matrix, position), problems)
        problems.raise_any()
        return _Matrix(Form.MATRIX, columns, rows, names)
    by_name = {tensor.name: tensor for tensor in tensors}
    for position, feature in enumerate(schema.features):
        tensor = by_name[feature.name]
        kinds, expected = KINDS[feature.kind]
        where = partial(pointer, "inputs", feature.name)
        if tensor.values.dtype.kind not in kinds:
            message = f"{shorten(feature.name)!r} is {feature.kind}: it takes {expected}, not {tensor.datatype}."
            problems.add(0, position, where(), message)
        elif feature.kind in OF_NUMBERS:
            column = _float64(tensor.values)
            columns[feature.name] = _numbers(feature, column, position, where, problems)
        else:
            cells = _cells(tensor.values)
            columns[feature.name], refused = decode_cells(feature, cells)
            problems.add_rows(refused, position, where, partial(_explain_cell, feature, cells))
    problems.raise_any()
    return Inputs(Form.COLUMNS, columns, rows, names)


def _is_matrix(names: Sequence[str], schema: Schema) -> bool:
    """Returns whether the only input is the matrix; a model of one feature of this name reads it as the feature."""
    alone = len(schema.features) == 1 and schema.features[0].name == MATRIX
    return list(names) == [MATRIX] and not alone


def _check_matrix(shape: tuple[int, ...], schema: Schema) -> None:
    others = [feature.name for feature in schema.features if feature.kind not in OF_NUMBERS]
    if others:
        message = f"The model has features that are no numbers, such as {others[0]!r}: send one input a feature."
        raise wrong(("inputs", MATRIX), message)
    width = len(schema.features)
    if len(shape) < 2 or shape[1] != width:
        expected = f"this model takes [rows, {width}], the features in the order of its metadata"
        raise wrong(("inputs", MATRIX), f"The shape is {list(shape)}; {expected}.")


def _check_names(names: Sequence[str], schema: Schema, problems: Problems) -> None:
    features = {feature.name: feature for feature in schema.features}
    seen: set[str] = set()
    for position, name in enumerate(names):
        if name in seen:
            problems.add(0, position, pointer("inputs", name), "There is more than one input of this name.")
        elif name not in features:
            problems.add(0, position, pointer("inputs", name), explain_unknown(name, schema, problems))
        seen.add(name)
    for position, (name, feature) in enumerate(features.items(), start=len(names)):
        if name not in seen:
            problems.add(0, position, pointer("inputs", name), explain_cell(feature, ABSENT))
    problems.raise_any()


def _numbers(
    feature: Feature, column: NDArray[np.float64], position: int, where: Any, problems: Problems
) -> NDArray[np.float64]:
    """Returns the column of a feature of numbers; adds the rows with a number that can't be used."""
    refused = np.isinf(column)
    if not feature.accepts_missing:
        refused |= np.isnan(column)
    if feature.kind is FeatureKind.BOOLEAN:
        refused |= ~(np.isnan(column) | (column == 0.0) | (column == 1.0))
    problems.add_rows(refused.nonzero()[0].tolist(), position, where, partial(_explain_number, feature, column))
    return column


def _float64(values: NDArray[Any]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # of NaNs that signal
        return np.array(values, np.float64)


def _of_matrix(position: int, row: int) -> str:
    return pointer("inputs", MATRIX, row, position)


def _explain_number(feature: Feature, column: NDArray[np.float64], row: int) -> str:
    if np.isnan(column[row]):
        return explain_cell(feature, None)
    expected = "0 or 1" if feature.kind is FeatureKind.BOOLEAN else "a finite number"
    return f"Expected {expected}, not {column[row]:g}."


def _cells(values: NDArray[Any]) -> list[Any]:
    """Returns elements as a JSON request would have them: None for missing, and the shortest text of a float."""
    if values.dtype.kind == "f":
        # 0.1 in 32 bits is 0.1 as a category, and not 0.10000000149011612.
        return [None if value != value else float(str(value)) for value in values]
    cells: list[Any] = values.tolist()
    return cells


def _explain_cell(feature: Feature, cells: list[Any], row: int) -> str:
    return explain_cell(feature, cells[row])
