"""Names of classes in an answer: made a piece at a time, where the answer is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.predictive.answer_columns import names_of_classes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.predictive.prediction import Unit

__all__ = ["ClassNames"]


class ClassNames:
    """Stands for a list with a class a row, or with a list of classes a row.

    Args:
        values: Indices of classes `[B]`, or whether each class is in a set `[B, C]`.
        unit: Which of the two.
        classes: Names of the C classes.
    """

    def __init__(self, values: NDArray[Any], unit: Unit, classes: tuple[str, ...]) -> None:
        self._values, self._unit, self._classes = values, unit, classes

    @property
    def size(self) -> int:
        """Most names in it."""
        return self._values.size

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: slice) -> list[Any]:
        """The names of some rows."""
        return names_of_classes(self._values[rows], self._unit, self._classes)
