"""Names for arrays of one type, whose docstrings say their shapes; and values that are made of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Doubles: TypeAlias = NDArray[np.float64]
Floats: TypeAlias = NDArray[np.float32]
"""Single precision."""
Ints: TypeAlias = NDArray[np.int64]
Places: TypeAlias = NDArray[np.intp]
"""Places in another array."""
Bools: TypeAlias = NDArray[np.bool_]
Array: TypeAlias = NDArray[Any]
"""Of any type, such as a canonical column."""

Value = TypeVar("Value")


def with_arrays(work: Callable[[Sequence[Array]], Array], values: Sequence[Value]) -> Value:
    """Return the first of values of one type, with each array made of those in the same place of all.

    Args:
        work: Makes an array of these.
        values: At least one; `numpy.concatenate` joins their rows.
    """
    parts: Sequence[Any] = values
    made = first = parts[0]
    if isinstance(first, np.ndarray):
        made = work(parts)
    elif isinstance(first, dict):
        made = {key: with_arrays(work, [part[key] for part in parts]) for key in first}
    elif hasattr(first, "__dataclass_fields__"):
        names = [field.name for field in fields(first)]
        made = type(first)(**{name: with_arrays(work, [getattr(part, name) for part in parts]) for name in names})
    whole: Value = made
    return whole


def group_equal(masks: Bools) -> Iterator[tuple[Bools, Places]]:
    """Yield each row that occurs among masks ``[B, Q]``, and the numbers of the rows that equal it."""
    if masks.all() and len(masks):  # the usual case, at once
        yield masks[0], np.arange(len(masks))
        return
    packed = np.packbits(masks, axis=1)  # sorting rows of many columns takes ten times as long
    _, firsts, of_row = np.unique(packed.view(f"S{packed.shape[1]}")[:, 0], return_index=True, return_inverse=True)
    for number, first in enumerate(firsts):
        yield masks[first], np.flatnonzero(of_row == number)
