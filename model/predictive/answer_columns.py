"""A prediction as the columns of a table, by its fields: numbers, names of classes, and lists of either."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from murho.model.arrays import Array
from murho.model.predictive.prediction import AnswerField, AnyPrediction, Axis, Place, PredictOptions, Unit

NAMED = (Unit.CLASS, Unit.CLASS_SET)
KEPT_PLANS = 256
"""Requests with as many different options have the names of their columns at hand."""


class Column(NamedTuple):
    """One column of a table.

    Attributes:
        values: Numbers ``[B]``, or a list of them in each cell ``[B, …]``; indices of classes ``[B]``; whether each
            class is in a cell's set ``[B, C]``. None: there are no values, as without draws.
        unit: What they are.
        rows: B.
    """

    values: Array | None
    unit: Unit
    rows: int

    def cells(self, classes: Sequence[str]) -> Array:
        """Return the cells as numbers, or as Python objects.

        Args:
            classes: Names of the classes, in the order of their indices.

        Returns:
            Numbers ``[B, …]``, NaN where there are none; names of classes, or lists of them, as objects ``[B]``, None
            where there are none.
        """
        named = self.unit in NAMED
        if self.values is None:
            return np.full(self.rows, None if named else np.nan, dtype=object if named else np.float64)
        if not named:
            return self.values
        return np.fromiter(names_of_classes(self.values, self.unit, classes), dtype=object, count=self.rows)


def names_of_classes(values: Array, unit: Unit, classes: Sequence[str]) -> list[Any]:
    """Return the names of classes by index ``[B]``, or of sets of classes ``[B, C]``: a text or a list per row."""
    names = np.array(classes, dtype=object)
    if unit is Unit.CLASS:
        listed: list[Any] = names[values].tolist()
        return listed
    members = names[values.nonzero()[1]].tolist()
    ends = np.cumsum(values.sum(axis=1)).tolist()
    return [members[start:stop] for start, stop in pairwise([0, *ends])]


def answer_columns(
    prediction: AnyPrediction, options: PredictOptions, places: Collection[Place] = (Place.FIRST,)
) -> dict[str, Array]:
    """Return the columns of a table by name; by default those that ``murho predict`` writes.

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
    prediction: AnyPrediction, options: PredictOptions, places: Collection[Place] = tuple(Place)
) -> dict[str, Column]:
    """Return the columns of a table by name, in the order of their places; arguments as of `answer_columns`.

    With ``samples=0`` columns that need draws are there, without values.
    """
    rows = len(prediction)
    plans = _plans(prediction.answer_fields, options, prediction.classes or ())
    return {plan.name: plan.column(prediction, rows) for plan in plans if plan.place in places}


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where a column of a table comes from.

    Attributes:
        name: Name of the column.
        path: Attributes that lead to its array.
        where: Its place in the array; ``()``: it is the whole array.
        unit: Unit of the array.
        place: Place of the column.
        empty: Shape of a row of a list without entries; None: it is no list.
    """

    name: str
    path: tuple[str, ...]
    where: tuple[Any, ...]
    unit: Unit
    place: Place
    empty: tuple[int, ...] | None = None

    def column(self, prediction: AnyPrediction, rows: int) -> Column:
        """Return the column of a prediction."""
        values: Any = prediction
        for name in self.path:
            values = None if values is None else getattr(values, name)
        if values is None and self.empty is not None:
            values = np.empty((rows, *self.empty))
        elif values is not None and self.where:
            values = values[self.where]
        return Column(values, self.unit, rows)


@lru_cache(KEPT_PLANS)
def _plans(fields: tuple[AnswerField, ...], options: PredictOptions, classes: tuple[str, ...]) -> list[_Plan]:
    """All columns of a kind of prediction, in the order of their places."""
    labels = {
        Axis.LEVELS: [label(level) for level in options.percentiles],
        Axis.THRESHOLDS: [label(threshold) for threshold in options.thresholds],
        Axis.CLASSES: list(classes),
    }
    plans: list[_Plan] = []
    for field in fields:
        if field.is_in(options):
            for part in field.parts or (field,):
                path = (field.name, part.name) if field.parts else (field.name,)
                plans += _of_field(part, path, field.place, labels)
    return sorted(plans, key=lambda plan: plan.place)


def _of_field(
    field: AnswerField, path: tuple[str, ...], place: Place, labels: dict[Axis, list[str]]
) -> Iterator[_Plan]:
    """Return the columns of one field: one for each entry of the axes that its column's name has."""
    column = field.column or field.name
    if Axis.SAMPLES in field.axes:
        empty = (0, *(len(labels[axis]) for axis in field.axes[2:]))
        yield _Plan(column, path, (), field.unit, place, empty)
        return
    axes = () if field.unit is Unit.CLASS_SET else field.axes[1:]
    for index in product(*(range(len(labels[axis])) for axis in axes)):
        named = {axis.value: labels[axis][at] for axis, at in zip(axes, index, strict=True)}
        where = (slice(None), *index) if index else ()
        yield _Plan(column.format(**named), path, where, field.unit, place)


def label(value: float) -> str:
    """Return the shortest text of a number, so that different numbers have different names."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
