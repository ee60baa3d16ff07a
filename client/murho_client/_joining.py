"""The answers to several requests of one prediction: what they have in common, and their arrays as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["common", "joined", "same"]


def common(answers: Sequence[Mapping[str, Any]], key: str, part: str) -> Any:
    """What all answers say of a key, such as the levels of `percentiles`; None if it is null or absent."""
    found = [None if answer.get(key) is None else answer[key][part] for answer in answers]
    same(found, key)
    return found[0]


def same(values: Sequence[Any], key: str) -> None:
    """Checks that all answers say the same of a key.

    Raises:
        ValueError: They don't.
    """
    for value in values:
        if value != values[0]:
            raise ValueError(f"the answers differ in {key}: {values[0]!r} and {value!r}")


def joined(name: str, dimensions: int, parts: Sequence[Any], counts: Sequence[int]) -> NDArray[np.float64]:
    """The arrays of consecutive answers as one.

    Args:
        name: Key of the answers, for messages.
        dimensions: Number of dimensions; the first one is the rows.
        parts: Nested lists of numbers, one for each answer.
        counts: Number of rows of each answer.

    Raises:
        ValueError: A part has another shape, or a number that isn't finite.
    """
    arrays = [np.asarray(part, dtype=np.float64) for part in parts]
    for array, count in zip(arrays, counts, strict=True):
        if array.ndim != dimensions or len(array) != count or not np.isfinite(array).all():
            raise ValueError(f"{name!r} isn't made of {count} rows of finite numbers")
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
