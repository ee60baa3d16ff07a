"""A prediction as the columns of a table, by its fields: numbers, names of classes, and lists of either."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.engines.answer_fields import Axis, Place, Unit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from murho.model.engines.answer_fields import AnswerField, Fielded
    from murho.model.engines.prediction import PredictOptions

__all__ = ["Column", "answer_columns", "label", "names_of_classes", "table_columns"]

IN_A_CELL = {Axis.ROWS, Axis.SAMPLES}
"""Axes that do not make a column for each entry."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        values: Numbers ``[B]``, or a list of them in each cell ``[B, …]``; indices of classes ``[B]``; whether each
            class is in a cell's set ``[B, C]``. None: there are no values, as without draws.
        unit: What they are.
        rows: B.
    """

    values: NDArray[Any] | None
    unit: Unit
    rows: int

    def cells(self, classes: Sequence[str]) -> NDArray[Any]:
        """The cells as numbers, or as Python objects.

        Args:
            classes: Names of the classes, in the order of their indices.

        Returns:
            Numbers ``[B, …]``, NaN where there are none; names of classes, or lists of them, as objects ``[B]``, None
            where there are none.
        """
        if self.unit in (Unit.CLASS, Unit.CLASS_SET):
            if self.values is None:
                return np.full(self.rows, None, dtype=object)
            listed = names_of_classes(self.values, self.unit, classes)
            return np.fromiter(listed, dtype=object, count=self.rows)
        return np.full(self.rows, np.nan) if self.values is None else self.values


def names_of_classes(values: NDArray[Any], unit: Unit, classes: Sequence[str]) -> list[Any]:
    """The names behind indices of classes ``[B]``, or behind sets of classes ``[B, C]``: a text, or a list, a row."""
    names = np.array(classes, dtype=object)
    if unit is Unit.CLASS:
        listed: list[Any] = names[values].tolist()
        return listed
    members = names[values.nonzero()[1]].tolist()
    ends = np.cumsum(values.sum(axis=1)).tolist()
    return [members[start:stop] for start, stop in pairwise([0, *ends])]


def answer_columns(
    prediction: Fielded, options: PredictOptions, places: Collection[Place] = (Place.FIRST,)
) -> dict[str, NDArray[Any]]:
    """The columns of a table by name; by default those that ``murho predict`` writes.

    Of a number: ``mean, std, epistemic_std, aleatoric_std``, then ``p5, p50, …``. Of a class: ``prediction``,
    ``p_CLASS`` for each class, ``entropy, epistemic_entropy, prediction_set``.

    Args:
        prediction: Of B rows.
        options: The options that it answers.
        places: Which columns; see `Place`.

    Returns:
        See `Column.cells`.
    """
    classes = prediction.classes or ()
    return {name: column.cells(classes) for name, column in table_columns(prediction, options, places).items()}


def table_columns(
    prediction: Fielded, options: PredictOptions, places: Collection[Place] = tuple(Place)
) -> dict[str, Column]:
    """The columns of a table by name, in the order of their places, as arrays; takes the arguments of `answer_columns`.

    With ``samples=0`` columns that need draws are there, without values.
    """
    classes = prediction.classes or ()
    labels = {
        Axis.LEVELS: [label(level) for level in options.percentiles],
        Axis.THRESHOLDS: [label(threshold) for threshold in options.thresholds],
        Axis.CLASSES: list(classes),
    }
    columns: dict[str, Column] = {}
    for place in sorted(places):
        for field in prediction.answer_fields:
            if field.place is place and field.asked(options):
                value = getattr(prediction, field.name)
                if not field.parts:
                    columns.update(_columns(field, value, labels, len(prediction)))
                    continue
                for part in field.parts:
                    of_part = None if value is None else getattr(value, part.name)
                    columns.update(_columns(part, of_part, labels, len(prediction)))
    return columns


def _columns(
    field: AnswerField, values: NDArray[Any] | None, labels: dict[Axis, list[str]], rows: int
) -> Iterator[tuple[str, Column]]:
    """The columns of one field: one for each entry of the axes that its column's name has."""
    if field.unit is Unit.CLASS_SET or field.place is Place.LAST:
        if values is None and field.unit is not Unit.CLASS_SET:
            # Lists without entries, with the axes behind the samples.
            values = np.empty((rows, 0, *(len(labels[axis]) for axis in field.axes[2:])))
        yield field.column, Column(values, field.unit, rows)
        return
    axes = [axis for axis in field.axes if axis not in IN_A_CELL]
    for index in product(*(range(len(labels[axis])) for axis in axes)):
        named = {axis.value: labels[axis][at] for axis, at in zip(axes, index, strict=True)}
        where: tuple[Any, ...] = (slice(None), *index)
        own = None if values is None else values[where]
        yield field.column.format(**named), Column(own, field.unit, rows)


def label(value: float) -> str:
    """The shortest text of a number, so that different numbers have different names."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
