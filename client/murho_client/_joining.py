"""The answers to several requests of one prediction: what they have in common, and their arrays as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["arrays_of", "common", "joined", "same"]

# Key of an answer → dimensions of its array. Every first dimension is the rows.
REGRESSION = {"mean": 1, "std": 1, "epistemic_std": 1, "aleatoric_std": 1, "draws": 2}
CLASSIFICATION = {"probabilities": 2, "epistemic_std": 2, "entropy": 1, "epistemic_entropy": 1, "draws": 3}


def arrays_of(answers: Sequence[Mapping[str, Any]], counts: Sequence[int], rows: int) -> dict[str, NDArray[Any]]:
    """What answers for consecutive rows have one entry a row of, by key.

    Args:
        answers: The JSON answers.
        counts: Number of rows of each.
        rows: Number of rows of all, B.

    Raises:
        KeyError: An answer lacks a key.
        ValueError: An array has another shape.
    """
    classes = answers[0].get("classes")
    of_classes = int(classes is not None)
    arrays: dict[str, NDArray[Any]] = {}

    def join(name: str, dimensions: int, parts: list[Any]) -> None:
        if not all(part is None for part in parts):
            arrays[name] = joined(name, dimensions, parts, counts)

    for name, dimensions in (REGRESSION if classes is None else CLASSIFICATION).items():
        join(name, dimensions, [answer.get(name) for answer in answers])
    for name, dimensions in {"percentiles": 2 + of_classes, "exceedance": 2}.items():
        join(name, dimensions, [(answer.get(name) or {}).get("values") for answer in answers])
    for name, dimensions in {"mean": 1, "std": 1, "percentiles": 2, "probabilities": 2}.items():
        join(f"mc_error.{name}", dimensions, [(answer.get("mc_error") or {}).get(name) for answer in answers])
    if classes is not None:
        names = [label for answer in answers for label in answer["prediction"]]
        arrays["prediction"] = np.array(names, dtype=str)
        if all(answer.get("prediction_set") is not None for answer in answers):
            members = [tuple(each) for answer in answers for each in answer["prediction_set"]["values"]]
            if len(members) != rows:
                raise ValueError(f"'prediction_set' isn't made of {rows} lists")
            arrays["prediction_set"] = np.fromiter(members, dtype=object, count=rows)
    return arrays


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
    arrays = [_array(part, dimensions) for part in parts]
    for array, count in zip(arrays, counts, strict=True):
        if array.ndim != dimensions or len(array) != count or not np.isfinite(array).all():
            raise ValueError(f"{name!r} isn't made of {count} rows of finite numbers")
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _array(part: Any, dimensions: int) -> NDArray[np.float64]:
    """Nested lists as an array; rows of no entries, such as the draws with `samples=0`, don't show all dimensions."""
    array = np.asarray(part, dtype=np.float64)
    empty = not array.size and 1 < array.ndim < dimensions
    return array.reshape(*array.shape, *[0] * (dimensions - array.ndim)) if empty else array
