"""The fields of an answer: what each array is called, its axes, its unit, and when it is asked for.

Each kind of prediction has a table of its fields. Whatever writes answers (JSON, tables, `/openapi.json`, the command
line) or checks them goes over that table, and does not know whether the target is a number or a class.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from murho.model.engines.prediction import PredictOptions

__all__ = [
    "COVERAGE",
    "LEVELS",
    "NUMBER_UNITS",
    "THRESHOLDS",
    "AnswerField",
    "Axis",
    "Detail",
    "Fielded",
    "Place",
    "Unit",
    "answer_size",
    "number_arrays",
]


class Axis(StrEnum):
    """What an axis of an array counts."""

    ROWS = "rows"
    CLASSES = "classes"
    LEVELS = "levels"
    THRESHOLDS = "thresholds"
    SAMPLES = "samples"


class Unit(StrEnum):
    """What the values of an array are."""

    TARGET = "target"
    """Numbers in the target's unit."""
    PROBABILITY = "probability"
    NATS = "nats"
    CLASS = "class"
    """Indices of classes, whole numbers."""
    CLASS_SET = "set of classes"
    """Whether each class, the last axis, is in a set; truth values."""


NUMBER_UNITS = frozenset({Unit.TARGET, Unit.PROBABILITY, Unit.NATS})


class Place(IntEnum):
    """Where the columns of a field stand in a table."""

    FIRST = 0
    """Among the columns that `murho predict` writes."""
    NEXT = 1
    LAST = 2
    """A list in each row."""


@dataclass(frozen=True, slots=True)
class Detail:
    """What the answer says with a field: the percentile levels, for example.

    Attributes:
        name: Its key in the answer.
        of: Gives it from the options.
        listed: Whether it is a list of numbers, or one number.
        whole: Whether whole numbers are written without a fraction.
    """

    name: str
    of: Callable[[PredictOptions], Any]
    listed: bool = True
    whole: bool = False


LEVELS = Detail("levels", lambda options: list(options.percentiles), whole=True)
THRESHOLDS = Detail("thresholds", lambda options: list(options.thresholds))
COVERAGE = Detail("coverage", lambda options: options.coverage, listed=False)


@dataclass(frozen=True, slots=True, eq=False)
class AnswerField:
    """One array of an answer, or a few that belong together. It is equal to itself alone.

    Attributes:
        name: Its attribute in the prediction, and its key in the JSON answer.
        axes: What its axes count; the first are the rows. Empty for a field of parts.
        unit: What its values are.
        about: What it is, for people.
        column: Name of its columns in a table: a pattern with the axes that each column has one entry of, such as
            ``p{levels}``.
        place: Where its columns stand.
        asked: Whether the answer to some options has it; None: every answer has it, if only as null.
        without_draws: Whether it is known without draws; if not it is null with ``samples=0``.
        detail: What the answer says with it; the values are then under ``values``.
        parts: The fields of an object within the prediction, such as Monte Carlo errors.
    """

    name: str
    axes: tuple[Axis, ...] = ()
    unit: Unit = Unit.TARGET
    about: str = ""
    column: str = ""
    place: Place = Place.FIRST
    asked: Callable[[PredictOptions], bool] | None = None
    without_draws: bool = False
    detail: Detail | None = None
    parts: tuple[AnswerField, ...] = ()
    numeric: bool = field(init=False)
    """Whether its values are numbers. Every answer asks that, and an enumeration is slow to look up."""

    def __post_init__(self) -> None:
        """Note whether the values are numbers."""
        object.__setattr__(self, "numeric", self.unit in NUMBER_UNITS)

    def is_in(self, options: PredictOptions) -> bool:
        """Whether the answer to some options has it."""
        return self.asked is None or self.asked(options)


class Fielded(Protocol):
    """A prediction with a table of its fields: `prediction.Prediction` or `class_prediction.ClassPrediction`."""

    @property
    def answer_fields(self) -> tuple[AnswerField, ...]:
        """Its fields, in the order of the JSON answer."""
        ...

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes; None for a number."""
        ...

    def __len__(self) -> int:
        """B."""
        ...


def number_arrays(prediction: Fielded) -> list[NDArray[np.float64]]:
    """All arrays of numbers of a prediction, ``[B, …]`` each; these have to be finite."""
    return [array for each, array in _arrays(prediction) if each.numeric]


def answer_size(prediction: Fielded) -> int:
    """Number of values in a prediction."""
    return sum(array.size for _, array in _arrays(prediction))


def _arrays(prediction: Fielded) -> Iterator[tuple[AnswerField, NDArray[Any]]]:
    for each in prediction.answer_fields:
        value = getattr(prediction, each.name)
        if value is None:
            continue
        if not each.parts:
            yield each, value
            continue
        for part in each.parts:
            yield part, getattr(value, part.name)
