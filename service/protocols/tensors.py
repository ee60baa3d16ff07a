"""Tensors: the datatypes of the protocol, shapes, and the values of a tensor that is JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.errors import Problem
from murho.service.errors import BadInputError
from murho.service.predict.problems import pointer, shorten
from murho.service.predict.rows import JSON_NAMES

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BF16", "BYTES", "DATATYPES", "Tensor", "json_values", "read_shape", "wrong"]

BYTES, BF16 = "BYTES", "BF16"
DATATYPES: dict[str, np.dtype[Any] | None] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    BF16: None,
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    BYTES: None,
}
"""Each datatype with NumPy's, little-endian; None: it has none. BF16 is Triton's, and binary only."""

MOST_DIMENSIONS = 2
MOST_DIGITS = 12
JSON_TYPES: dict[str, tuple[frozenset[type], str]] = {
    "b": (frozenset({bool}), "true or false"),
    "i": (frozenset({int}), "a whole number"),
    "u": (frozenset({int}), "a whole number"),
    "f": (frozenset({int, float}), "a number"),
    "O": (frozenset({str}), "a string"),
}
"""By the kind of NumPy's datatype: the types of JSON values, and what they are called."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input of a request.

    Attributes:
        name: Its name.
        datatype: A key of `DATATYPES`.
        shape: One or two dimensions, the first for the rows.
        values: All elements in row-major order, `[count]`: booleans, integers, floats with NaN for missing, or an
            object array of `str` with None for missing.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: NDArray[Any]


def wrong(place: tuple[str | int, ...], message: str) -> BadInputError:
    """Returns the error of one thing at one place of a request."""
    return BadInputError([Problem(pointer(*place), message)])


def read_shape(shape: object, place: tuple[str | int, ...]) -> tuple[int, ...]:
    """Returns a shape in a request.

    Raises:
        BadInputError: It is no list of one or two sizes.
    """
    if not isinstance(shape, list) or not 1 <= len(shape) <= MOST_DIMENSIONS:
        found = f"a list of {len(shape)}" if isinstance(shape, list) else JSON_NAMES.get(type(shape), "this")
        raise wrong(place, f"Expected a shape of one or two sizes, such as [4] or [4, 1], not {found}.")
    for index, size in enumerate(shape):
        if type(size) is not int or not 0 <= size < 10**MOST_DIGITS:
            shown = shorten(str(size)) if isinstance(size, int | float) else JSON_NAMES.get(type(size), "this")
            raise wrong((*place, index), f"Expected a size, a whole number from 0, not {shown}.")
    return tuple(shape)


def json_values(data: object, datatype: str, shape: tuple[int, ...], place: tuple[str | int, ...]) -> NDArray[Any]:
    """Returns the elements of a tensor that is JSON, `[count]`. An empty text is a missing value, as in CSV.

    Args:
        data: The parsed `data`: a flat list in row-major order, or lists of lists in the form of the shape. null is a
            missing value, and so is NaN in the datatypes for floats.
        datatype: A key of `DATATYPES`.
        shape: The shape.
        place: Where `data` is.

    Raises:
        BadInputError: It has another shape, or a value of another type; the index is that of the flat list.
    """
    if datatype == BF16:
        raise wrong(place, "BF16 tensors have to be sent as binary data.")
    flat = _flat(data, shape, place)
    dtype = DATATYPES[datatype]
    kind = "O" if dtype is None else dtype.kind
    types, expected = JSON_TYPES[kind]
    if not set(map(type, flat)) <= types | {NoneType}:
        index = next(index for index, value in enumerate(flat) if type(value) not in types | {NoneType})
        found = JSON_NAMES.get(type(flat[index]), "this")
        raise wrong((*place, index), f"Expected {expected} for {datatype}, or null, not {found}.")
    if dtype is None:
        values = np.empty(len(flat), dtype=object)
        values[:] = [text or None for text in flat]
        return values
    if kind in "iu":
        _check_range(flat, datatype, dtype, place)
    try:
        numbers = np.array(flat, dtype=np.float64 if kind == "f" or None in flat else dtype)
    except OverflowError:
        raise wrong(place, f"A number is too large for {datatype}.") from None
    if kind == "f":
        with np.errstate(over="ignore"):  # infinities are refused with their row, where the features are read
            return numbers.astype(dtype)
    return numbers


def _flat(data: object, shape: tuple[int, ...], place: tuple[str | int, ...]) -> list[Any]:
    """Returns the elements as one list."""
    if not isinstance(data, list):
        raise wrong(place, f"Expected a list of values, not {JSON_NAMES.get(type(data), 'this')}.")
    nested = bool(data) and isinstance(data[0], list)
    if nested:
        width = shape[1] if len(shape) == MOST_DIMENSIONS else -1
        for index, row in enumerate(data):
            if not isinstance(row, list) or len(row) != width:
                found = f"a list of {len(row)}" if isinstance(row, list) else JSON_NAMES.get(type(row), "this")
                expected = "a value" if width < 0 else f"a list of {width} values"
                raise wrong((*place, index), f"Expected {expected}, as the shape {list(shape)} says, not {found}.")
        data = list(chain.from_iterable(data)) if len(data) == shape[0] else data
    count = math.prod(shape)
    if len(data) != count:
        raise wrong(place, f"There are {len(data)} values, where the shape {list(shape)} has {count}.")
    return data


def _check_range(flat: list[Any], datatype: str, dtype: np.dtype[Any], place: tuple[str | int, ...]) -> None:
    limits = np.iinfo(dtype)
    for index, value in enumerate(flat):
        if value is not None and not limits.min <= value <= limits.max:
            raise wrong((*place, index), f"{datatype} goes from {limits.min} to {limits.max}.")
