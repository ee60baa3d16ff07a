"""The binary tensor extension: after the JSON of a body come the bytes of its binary tensors, one after the other.

Numbers are little-endian and packed; BOOL is a byte, 0 or 1; each element of BYTES is its length as a 32-bit number and
then its bytes. The header `Inference-Header-Content-Length` has the size of the JSON.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.errors import Problem
from murho.model.tables.cells import LONGEST_TEXT, explain_long_text
from murho.service.errors import BadInputError
from murho.service.protocols.tensors import BF16, BYTES, DATATYPES, wrong

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LENGTH_HEADER", "Blobs", "binary_values", "encode_values", "header_length"]

LENGTH_HEADER = "Inference-Header-Content-Length"
MOST_DIGITS = 12
LENGTH_BYTES = 4


def header_length(given: str | None, size: int) -> int | None:
    """Returns the bytes of the JSON in a body; None: the whole body is JSON.

    Args:
        given: The header's value.
        size: Bytes of the body, not compressed.

    Raises:
        BadInputError: The header is no number, or larger than the body.
    """
    if given is None:
        return None
    text = given.strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        message = f"The header {LENGTH_HEADER} is {given[:80]!r}; it should be the size of the JSON in bytes."
        raise BadInputError([Problem("", message)])
    length = int(text)
    if length > size:
        message = f"The header {LENGTH_HEADER} says {length} bytes, and the body has {size}."
        raise BadInputError([Problem("", message)])
    return length


class Blobs:
    """The bytes behind the JSON of a body, taken tensor by tensor.

    Args:
        data: All of them.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def take(self, size: object, place: tuple[str | int, ...]) -> memoryview:
        """Returns the next bytes.

        Args:
            size: Their number, as the request has it.
            place: Where the request has it.

        Raises:
            BadInputError: There aren't that many left, or it is no number.
        """
        left = len(self._data) - self._position
        if type(size) is not int or size < 0:
            raise wrong(place, "Expected a number of bytes, a whole number from 0.")
        if size > left:
            raise wrong(place, f"{size} bytes are announced, and {left} are left behind the JSON of the body.")
        start, self._position = self._position, self._position + size
        return self._data[start : self._position]

    def finish(self) -> None:
        """Checks that no bytes are left.

        Raises:
            BadInputError: There are some.
        """
        left = len(self._data) - self._position
        if left:
            message = f"The body has {left} bytes that belong to no tensor: the sizes of the tensors don't add up."
            raise BadInputError([Problem("", message)])


def binary_values(
    data: memoryview, datatype: str, shape: tuple[int, ...], place: tuple[str | int, ...]
) -> NDArray[Any]:
    """Returns the elements of a tensor that is bytes, `[count]`: numbers as a view, BYTES as texts.

    Nothing is allocated that isn't in the body already.

    Raises:
        BadInputError: The number of bytes doesn't fit the shape, or they aren't of this datatype.
    """
    count = math.prod(shape)
    if datatype == BYTES:
        return _texts(data, count, shape, place)
    dtype = np.dtype("<u2") if datatype == BF16 else DATATYPES[datatype]
    assert dtype is not None  # noqa: S101 - for the type checker: only BF16 and BYTES have none
    if len(data) != count * dtype.itemsize:
        raise wrong(
            place,
            f"There are {len(data)} bytes, where {datatype} of the shape {list(shape)} takes {count * dtype.itemsize}.",
        )
    if datatype == BF16:  # the upper half of a 32-bit float
        return (np.frombuffer(data, dtype).astype(np.uint32) << 16).view(np.float32)
    if datatype == "BOOL":
        numbers = np.frombuffer(data, np.uint8)
        if (numbers > 1).any():
            raise wrong((*place, int((numbers > 1).argmax())), "A byte of BOOL is 0 or 1.")
        return numbers.view(np.bool_)
    return np.frombuffer(data, dtype)


def _texts(data: memoryview, count: int, shape: tuple[int, ...], place: tuple[str | int, ...]) -> NDArray[Any]:
    """Returns texts, None for an empty one."""
    if len(data) < LENGTH_BYTES * count:
        least = f"at least {LENGTH_BYTES * count}, {LENGTH_BYTES} for the length of each element"
        raise wrong(place, f"There are {len(data)} bytes, where BYTES of the shape {list(shape)} takes {least}.")
    values = np.empty(count, dtype=object)
    position = 0
    for index in range(count):
        start = position + LENGTH_BYTES
        position = start + int.from_bytes(data[position:start], "little")
        if start > len(data) or position > len(data):
            left = max(0, len(data) - start)
            raise wrong(
                (*place, index), f"The element is said to have {position - start} bytes, and {left} are left of it."
            )
        if position - start > LONGEST_TEXT:
            raise wrong((*place, index), f"Of the element, {explain_long_text(position - start)}.")
        try:
            values[index] = str(data[start:position], "utf-8") or None
        except UnicodeDecodeError:
            raise wrong((*place, index), "The element isn't text in UTF-8.") from None
    if position != len(data):
        raise wrong(place, f"{len(data) - position} bytes are left behind the {count} elements of BYTES.")
    return values


def encode_values(values: NDArray[Any], datatype: str) -> bytes:
    """Returns the bytes of a tensor in row-major order: numbers, or texts as BYTES."""
    if datatype == BYTES:
        texts = [text.encode() for text in values.ravel()]
        return b"".join(part for text in texts for part in (len(text).to_bytes(LENGTH_BYTES, "little"), text))
    return np.ascontiguousarray(values, dtype=DATATYPES[datatype]).tobytes()
