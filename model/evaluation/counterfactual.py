"""Counterfactuals: the nearest rows to a given one whose answer reaches a goal.

Rows are as far apart as Gower (1971, "A general coefficient of similarity") says: the mean over features of how far two
numbers are apart, as a share of the training range, and 1 for categories that differ. What is found lies within the
training range, is not unlike the training rows and differs from the row in few cells.

The search is a beam search over sets of changed cells: all single changes first, then further changes of the most
promising rows. Then every row that reaches the goal is moved back towards the given one, one cell at a time, as far as
the goal holds. It is asked by a generator (`model.evaluation.why`), so that whatever answers rows can validate them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from murho.model.errors import OptionError
from murho.model.evaluation.why import PredictionRequests, plain
from murho.model.predictive.prediction import AnyPrediction, PredictOptions
from murho.model.tables.schema import Columns, Feature, FeatureKind, Schema, count_rows, is_missing, select_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.arrays import Array, Doubles, Ints
    from murho.model.encoding.feature_distribution import FeatureDistribution

MOST_ROWS = 8_000
"""Rows that are asked for at most."""
BEAM, DEPTH, KEPT = 16, 4, 24
"""Rows that are changed further; cells that are changed at most, unless nothing is found; rows that are moved back."""
ROUNDS = 6
FIRST_VALUES, FURTHER_VALUES = 33, 9
"""Values of a number that are tried alone, and beside other changes."""
FARTHEST = 8.0

Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ExceedanceGoal(_Strict):
    """The target exceeds a threshold with this probability at least."""

    threshold: Finite
    at_least: Share


class BandGoal(_Strict):
    """The mean lies in a band, in the target's unit."""

    at_least: Finite | None = None
    at_most: Finite | None = None


class StdGoal(_Strict):
    """The standard deviation is this at most, in the target's unit."""

    at_most: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ProbabilityGoal(_Strict):
    """A class has this probability at least."""

    of: str = Field(alias="class")
    at_least: Share


class Goal(_Strict):
    """What an answer shall be; all that is given has to hold."""

    exceedance: ExceedanceGoal | None = None
    mean: BandGoal | None = None
    std: StdGoal | None = None
    probability: ProbabilityGoal | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set or (self.mean is not None and not self.mean.model_fields_set):
            raise ValueError("Say what the answer shall be: exceedance, mean, std or, of a class, probability")
        return self

    def options(self, schema: Schema, of: PredictOptions | None = None) -> PredictOptions:
        """Options of answers that tell whether the goal is reached.

        Args:
            schema: The features and the target.
            of: Their samples, seed, and what they describe.

        Raises:
            OptionError: It is a goal of another kind of target.
        """
        of = PredictOptions() if of is None else of
        classes, wanted = schema.target.classes, self.probability
        if (classes is None) != (wanted is None) or (classes is not None and len(self.model_fields_set) > 1):
            kind = "number: exceedance, mean and std" if classes is None else "class: probability"
            raise OptionError(f"goal: the target is a {kind} can be goals")
        if wanted is not None and wanted.of not in (classes or ()):
            raise OptionError(f"goal: there is no class {wanted.of!r:.80}; there are {', '.join(classes or ())[:200]}")
        if not of.samples and (self.std or self.exceedance or self.probability):
            raise OptionError("goal: without draws only the mean is known; ask for samples")
        thresholds = () if self.exceedance is None else (self.exceedance.threshold,)
        return replace(plain(of), thresholds=thresholds)

    def shortfall(self, prediction: AnyPrediction, unit: float) -> Doubles:
        """How much each answer lacks, ``[B]``: 0 where the goal is reached.

        Probabilities count by their normal scores. Where these end, the mean still tells rows apart.

        Args:
            prediction: The answers.
            unit: What a difference of means counts in, in the target's unit.
        """
        answer: Any = prediction
        lacks = []
        if self.probability is not None:
            of_class = answer.probabilities[:, answer.classes.index(self.probability.of)]
            lacks.append(_lack(of_class, self.probability.at_least))
        if self.exceedance is not None:
            lack = _lack(answer.exceedance[:, 0], self.exceedance.at_least)
            below = np.maximum(0.0, self.exceedance.threshold - answer.mean) / unit
            lacks.append(np.where(lack > 0.0, lack + 0.01 * below, 0.0))
        if self.mean is not None:
            if self.mean.at_least is not None:
                lacks.append(np.maximum(0.0, self.mean.at_least - answer.mean) / unit)
            if self.mean.at_most is not None:
                lacks.append(np.maximum(0.0, answer.mean - self.mean.at_most) / unit)
        if self.std is not None:
            lacks.append(np.maximum(0.0, answer.std / self.std.at_most - 1.0))
        return np.asarray(np.sum(lacks, axis=0), dtype=np.float64)


def _lack(probabilities: Doubles, at_least: float) -> Doubles:
    """How far normal scores of probabilities are below that of the wanted one, ``[B]``."""
    from murho.model.encoding.feature_distribution import normal_quantile  # here: it imports torch

    scores = normal_quantile(np.append(probabilities, at_least)).clip(-FARTHEST, FARTHEST)
    return np.asarray(np.where(probabilities >= at_least, 0.0, np.maximum(scores[-1] - scores[:-1], 1e-12)))


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """Rows that reach a goal, the nearest one first.

    Attributes:
        columns: Their canonical columns, ``[n]`` each.
        distances: From the given row, ``[n]``.
        prediction: The answers for them; None where n is 0.
        reached: Whether the given row reaches the goal as it is.
    """

    columns: dict[str, Array]
    distances: Doubles
    prediction: AnyPrediction | None
    reached: bool = False


def counterfactuals(
    schema: Schema,
    distribution: FeatureDistribution | None,
    row: Columns,
    goal: Goal,
    options: PredictOptions,
    *,
    fixed: Sequence[str] = (),
    count: int = 3,
) -> PredictionRequests[Counterfactual]:
    """Look for the nearest rows that reach a goal.

    Args:
        schema: The features.
        distribution: Of the features over the training rows, which gives values to try.
        row: Canonical columns of the row, ``[1]`` each.
        goal: What the answer shall be.
        options: Of the answers: `Goal.options`.
        fixed: Features whose cells stay as they are, besides missing ones.
        count: How many rows to find; each changes another set of cells.
    """
    start = yield row, options
    unit = 1.0 if start.classes is not None or start.std is None else max(float(start.std[0]), 1e-12)
    found = _Found(schema, row, goal, unit)
    if found.add(row, start):
        return Counterfactual(dict(row), np.zeros(1), start, reached=True)
    free = [each for each in schema.features if each.name not in fixed and not is_missing(row[each.name])[0]]
    asked = 1
    for depth in range(len(free)):
        if depth >= DEPTH and len(found.diverse(1)):
            break
        step = found.change_cells(free, distribution, FURTHER_VALUES if depth else FIRST_VALUES)
        rows = min(count_rows(step), MOST_ROWS // 2 - asked)
        if rows <= 0:
            break
        step = select_rows(step, np.arange(rows))
        asked += rows
        found.add(step, (yield step, options))
    for turn in range(ROUNDS):
        step = found.nearer(turn)
        rows = count_rows(step)
        if not rows or asked + rows > MOST_ROWS - count:
            break
        asked += rows
        found.add(step, (yield step, options))
    chosen = found.diverse(count)
    if not len(chosen):
        return Counterfactual(select_rows(row, np.empty(0, np.int64)), np.empty(0), None)
    columns = select_rows(found.columns, chosen)
    return Counterfactual(columns, found.distances[chosen], (yield columns, options))


class _Found:
    """The rows tried so far, in the order in which they were tried.

    Attributes:
        columns: Their canonical columns, ``[n]`` each.
        distances: From the given row, ``[n]``.
        lacks: What they lack for the goal, infinite where a row is unlike the training rows, ``[n]``.
        differs: Whether each feature differs from the given row, ``[n, F]``.
    """

    def __init__(self, schema: Schema, row: Columns, goal: Goal, unit: float) -> None:
        self._schema, self._row, self._goal, self._unit = schema, row, goal, unit
        self.columns = {name: column[:0] for name, column in row.items()}
        self.distances, self.lacks = np.empty(0), np.empty(0)
        self.differs = np.empty((0, len(schema.features)), dtype=np.bool_)
        self._grown: set[int] = set()

    def add(self, columns: Columns, prediction: AnyPrediction) -> bool:
        """Take note of answered rows; returns whether any reaches the goal."""
        gaps = np.stack([_gap(each, self._row[each.name][0], columns[each.name]) for each in self._schema.features])
        lacks = self._goal.shortfall(prediction, self._unit)
        given = not len(self.lacks)  # may be unlike the training rows itself
        if prediction.outlier is not None and not given:
            lacks = np.where(prediction.outlier, np.inf, lacks)
        self.columns = {name: np.concatenate([of, columns[name]]) for name, of in self.columns.items()}
        self.distances = np.append(self.distances, gaps.mean(axis=0))
        self.differs = np.concatenate([self.differs, gaps.T > 0.0])
        self.lacks = np.append(self.lacks, lacks)
        return bool((lacks == 0.0).any())

    def change_cells(
        self, free: Sequence[Feature], distribution: FeatureDistribution | None, values: int
    ) -> dict[str, Array]:
        """Return the most promising rows, each with one more changed cell, ``[n]``."""
        waiting = np.array([place for place in range(len(self.lacks)) if place not in self._grown], dtype=np.int64)
        waiting = waiting[np.isfinite(self.lacks[waiting]) & (self.lacks[waiting] > 0.0)]
        gained = (self.lacks[0] - self.lacks[waiting]) / np.maximum(self.distances[waiting], 1e-9)
        orders = (waiting[np.argsort(self.lacks[waiting])], waiting[np.argsort(-gained)])
        best = np.unique(np.concatenate([order[: BEAM // 2] for order in orders]))
        self._grown.update(best.tolist())
        blocks: list[Columns] = []
        places = {each.name: place for place, each in enumerate(self._schema.features)}
        for feature in free:
            rows = best[~self.differs[best, places[feature.name]]]
            tried = _values(feature, distribution, values)
            block = {name: column[rows].repeat(len(tried)) for name, column in self.columns.items()}
            blocks.append(block | {feature.name: np.tile(tried, len(rows))})
        return self._stack(blocks)

    def nearer(self, turn: int) -> dict[str, Array]:
        """Return the nearest rows that reach the goal, each with one number, or all of them, moved back; ``[n]``."""
        blocks: list[Columns] = []
        for place in self.diverse(KEPT):
            moving = [
                each.name
                for each, differs in zip(self._schema.features, self.differs[place], strict=True)
                if differs and each.kind in (FeatureKind.NUMERIC, FeatureKind.DATE)
            ]
            for names in [*([name] for name in moving), *([moving] if len(moving) > 1 else [])]:
                shares = np.linspace(0.0, 1.0, 9)[1:-1] if turn < 2 else np.array([0.02, 0.05, 0.1, 0.2])
                block = {name: column[[place] * len(shares)] for name, column in self.columns.items()}
                for name in names:
                    ends = np.array([self.columns[name][place], self._row[name][0]])
                    moved = block[name] + shares * (ends[1] - block[name])
                    block[name] = np.round(moved) if (ends == np.round(ends)).all() else moved
                blocks.append(block)
        return self._stack(blocks)

    def _stack(self, blocks: Sequence[Columns]) -> dict[str, Array]:
        """Return the rows of all blocks."""
        return {
            name: np.concatenate([column[:0], *(block[name] for block in blocks)])
            for name, column in self.columns.items()
        }

    def diverse(self, count: int) -> Ints:
        """Return the nearest rows that reach the goal, at most one for each set of changed cells, by their places."""
        reaching = np.flatnonzero(self.lacks == 0.0)
        nearest: dict[bytes, int] = {}
        for place in reaching[np.argsort(self.distances[reaching], kind="stable")]:
            nearest.setdefault(self.differs[place].tobytes(), int(place))
        return np.array([*nearest.values()][:count], dtype=np.int64)


def _gap(feature: Feature, given: Any, cells: Array) -> Doubles:
    """Gower's distance of cells ``[n]`` from a given one."""
    if cells.dtype == object:
        return np.asarray(cells != given, dtype=np.float64)
    if feature.minimum is None or feature.maximum is None or np.isnan(given):
        return np.zeros(len(cells))
    return np.asarray(np.abs(cells - given) / max(feature.maximum - feature.minimum, 1e-300))


def _values(feature: Feature, distribution: FeatureDistribution | None, most: int) -> Array:
    """Values to try in place of a cell: known categories, or numbers within the training range."""
    if feature.kind is FeatureKind.CATEGORICAL:
        return np.array(feature.categories, dtype=object)
    if feature.minimum is None or feature.maximum is None:
        return np.empty(0)
    if feature.kind is FeatureKind.BOOLEAN:
        return np.array([0.0, 1.0])
    values = np.linspace(feature.minimum, feature.maximum, most)
    if distribution is not None and feature.name in distribution.numbers:
        values = distribution.numbers[feature.name].values
    values = values[np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).astype(np.int64))]
    return values.clip(feature.minimum, feature.maximum)
