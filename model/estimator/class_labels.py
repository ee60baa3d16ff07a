"""The classes of a scikit-learn target, any values, and their names in the model, which are texts.

The model's classes are sorted texts in their canonical form (`model.data.cells`), in which 1, 1.0 and "1" are one.
scikit-learn's are the distinct values of y, sorted: distinct values must get distinct names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.data.cells import canonical_category

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["ClassLabels"]

AS_JSON = "biuf"
"""Kinds of dtype whose values JSON keeps, beside text."""


@dataclass(frozen=True, eq=False)
class ClassLabels:
    """Values of C classes and their names in the model.

    Attributes:
        values: The classes of y, ``[C]``, sorted, of the dtype of y.
        names: The name of each in the model.
    """

    values: NDArray[Any]
    names: tuple[str, ...]

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        """Name the classes ``[C]``: by their canonical texts, numbered where two of them would be the same."""
        names: list[str] = []
        for value in values.tolist():
            name = text = _text(value)
            number = 1
            while name in names:
                number += 1
                name = f"{text} ({number})"
            names.append(name)
        return cls(values, tuple(names))

    @property
    def places(self) -> NDArray[np.intp]:
        """Index of each class among the model's classes, ``[C]``."""
        ranks: NDArray[np.intp] = np.argsort(np.argsort(np.array(self.names, dtype=object)))
        return ranks

    def to_json(self) -> dict[str, Any]:
        """As JSON; values that it can't keep are left out, and their names stand for them."""
        values = self.values
        texts = values.dtype.kind in "UOT" and all(isinstance(value, str) for value in values.tolist())
        if texts:
            return {"names": list(self.names), "values": values.tolist(), "dtype": _text_dtype(values)}
        if values.dtype.kind in AS_JSON:
            return {"names": list(self.names), "values": values.tolist(), "dtype": values.dtype.str}
        return {"names": list(self.names)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], classes: tuple[str, ...]) -> Self:
        """The inverse of `to_json`.

        Args:
            data: The JSON.
            classes: The model's classes, sorted.

        Raises:
            ValueError: The names are not those of the model, or there is not one value for each.
        """
        names = tuple(str(name) for name in data["names"])
        if tuple(sorted(names)) != classes:
            raise ValueError("the classes of the estimator are not those of the model")
        values = np.array(data["values"], dtype=data["dtype"]) if "values" in data else np.array(names)
        if values.shape != (len(names),):
            raise ValueError("not one value for each class of the estimator")
        return cls(values, names)


def _text(value: Any) -> str:
    try:
        text = canonical_category(value)
    except ValueError:
        text = str(value).strip()
    return text or "(empty)"  # an empty text would be a missing cell


def _text_dtype(values: NDArray[Any]) -> str:
    return "object" if values.dtype.kind == "O" else "str"
