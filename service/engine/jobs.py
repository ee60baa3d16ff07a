"""A job: one request for predictions as plain data; the passes that compute rows of jobs; its answer.

A pass takes rows of several requests to one checkpoint, with the same seed and number of draws. They share one encoding
and one run of the network; requests with the same options also share their question. The answer for a row does not
depend on what else is in the pass.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np

from murho.model.errors import MurhoError
from murho.model.predictive.prediction import AnyPrediction, PredictOptions, Question, arrays_of, in_one, rows_of
from murho.model.runtime import at_most_threads
from murho.service.errors import ComputationError, NotReadyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.checkpoint.spec import ModelSpec
    from murho.model.predictive.answer_cost import AnswerCost
    from murho.model.tables.schema import Columns, Schema, UnfamiliarValue

Outcome: TypeAlias = "Answer | BaseException | None"
"""What became of a slice: the answer of its job, an error, or None while rows of the job are left."""


class ModelLike(Protocol):
    """The interface of a loaded checkpoint; `model.checkpoint.posterior.Posterior` implements it."""

    @property
    def name(self) -> str:
        """The checkpoint's name."""

    @property
    def version(self) -> str:
        """The checkpoint's version."""

    @property
    def schema(self) -> Schema:
        """Features and target."""

    @property
    def spec(self) -> ModelSpec:
        """The content of `model.json`."""

    @property
    def answer_cost(self) -> AnswerCost:
        """What answers cost but for new draws, for whoever has not the model itself."""

    def rows_without_draws(self, rows: int, incomplete: int, seconds: float) -> int:
        """Return how many of the rows take about so long without draws, if so many have cells to impute.

        It is the same at every call.
        """

    def cost(self, rows: int, options: PredictOptions, incomplete: int = 0) -> float:
        """Return the work of an answer, in row-draws: one row under one draw of a plain answer is 1.

        So many of the rows have cells to impute.
        """

    def predict_questions(
        self, columns: Columns, questions: Sequence[Question]
    ) -> Sequence[tuple[AnyPrediction, list[UnfamiliarValue]]]:
        """Answer several questions about consecutive rows of canonical columns `[B]` in one pass.

        All questions have the same samples and seed. With each answer come the first values unlike the training rows,
        with rows counted within the question.
        """

    def warm_up(self) -> None:
        """Make the first prediction as fast as the next."""


@dataclass(slots=True)
class Timing:
    """Seconds that one job spent in the queue and in computation."""

    queue: float = 0.0
    compute: float = 0.0


class Answer(NamedTuple):
    """A prediction and its warnings.

    Attributes:
        prediction: Finite arrays.
        outside: The first values unlike the training rows.
        rows: Which rows of the prediction are those of the job; None: all.
    """

    prediction: AnyPrediction
    outside: list[UnfamiliarValue]
    rows: slice | None = None

    def own(self) -> Answer:
        """Return the answer with the rows of the job alone."""
        return self if self.rows is None else Answer(rows_of(self.prediction, self.rows), self.outside)


@dataclass(slots=True, eq=False)
class Job:
    """Rows of one request, what is asked about them, and how far their computation has come.

    Attributes:
        model: The checkpoint that answers.
        columns: Canonical columns, all features of the model's schema: its rows, and perhaps those of other jobs.
        options: Valid options.
        rows: B.
        cost: The work, in row-draws (`ModelLike.cost`).
        caller: Who asks. Callers take turns.
        deadline: Time on the scheduler's clock after which the answer is no longer wanted.
        max_outside: The most values unlike the training rows to return.
        rows_of_pass: Rows in a pass of a job that shares none, as without draws or of a decision, so that its answer is
            the same to the bit; None: what its model's speed lets.
        arrived: When its request began, on the scheduler's clock; the deadline counts from then.
        submitted: When it was submitted, on the scheduler's clock.
        first: Where its rows begin in the columns.
        timing: Seconds in the queue and in computation so far.
        begun: When its first rows began to be computed, on the scheduler's clock; None: it waits.
        done: Number of rows computed so far.
        parts: The predictions of these rows, tile by tile.
        outside: The values unlike the training rows among them.
        over: Whether nobody waits for it any more.
        waiting: Seconds of work for which it waits among small requests.
    """

    model: ModelLike
    columns: Columns
    options: PredictOptions
    rows: int
    cost: float
    caller: str
    deadline: float
    max_outside: int
    rows_of_pass: int | None = None
    arrived: float = 0.0
    submitted: float = 0.0
    first: int = 0
    timing: Timing = field(default_factory=Timing)
    begun: float | None = None
    done: int = 0
    parts: list[AnyPrediction] = field(default_factory=list)
    outside: list[UnfamiliarValue] = field(default_factory=list)
    over: bool = False
    waiting: float = 0.0


class Slice(NamedTuple):
    """Consecutive rows of a job that are computed together: so many, from `start` on."""

    job: Job
    start: int
    rows: int

    @property
    def stop(self) -> int:
        """Where the next slice begins."""
        return self.start + self.rows


class RowsNotFiniteError(MurhoError):
    """Some rows are so far outside the training range that the arithmetic overflows.

    Attributes:
        cells: Row and feature of each value outside the range in these rows.
    """

    def __init__(self, cells: list[tuple[int, str]]) -> None:
        super().__init__("The prediction isn't finite: some values are too far outside the training range.")
        self.cells = cells


def compute(slices: Sequence[Slice]) -> list[Outcome]:
    """Compute one pass.

    Args:
        slices: Rows of jobs of one lane (`engine.admission.FairQueue`).

    Returns:
        One outcome for each slice. One that fails harms no other.
    """
    try:
        columns, groups, questions, stop = _columns(slices), _groups(slices), [], 0
        for group in groups:
            start, stop = stop, stop + sum(part.rows for part in group)
            job = group[0].job
            room = job.max_outside - len(job.outside) if len(group) == 1 else sys.maxsize
            questions.append(Question(slice(start, stop), job.options, room))
        # Where requests share a pass, other processors have work of their own: their answers are encoded.
        with at_most_threads(1) if len(slices) > 1 else nullcontext():
            answers = slices[0].job.model.predict_questions(columns, questions)
        return [
            outcome
            for group, question, answer in zip(groups, questions, answers, strict=True)
            for outcome in _outcomes(group, Answer(*answer), columns, question.rows.start)
        ]
    except BaseException as error:  # the compute thread outlives any job; the caller gets the error
        if len(slices) == 1:
            return [_passing(error)]
    return [outcome for part in slices for outcome in compute([part])]


def _columns(parts: Sequence[Slice]) -> Columns:
    """Return the rows of all parts; neighbours in the same columns are taken at once."""
    pieces: list[tuple[Columns, int, int]] = []
    for part in parts:
        columns, start, stop = part.job.columns, part.job.first + part.start, part.job.first + part.stop
        if pieces and pieces[-1][0] is columns and pieces[-1][2] == start:
            pieces[-1] = columns, pieces[-1][1], stop
        else:
            pieces.append((columns, start, stop))
    names = parts[0].job.columns
    if len(pieces) > 1:
        return {name: np.concatenate([columns[name][start:stop] for columns, start, stop in pieces]) for name in names}
    ((columns, start, stop),) = pieces
    return {name: column[start:stop] for name, column in columns.items()}


def _groups(parts: Sequence[Slice]) -> list[list[Slice]]:
    """Return the parts in groups that have one answer: neighbours that are whole jobs with the same options."""
    groups, is_open = list[list[Slice]](), False
    for part in parts:
        # Of a job of many rows not all are told that are unlike the training rows: it has a group, and a limit, alone.
        may_join = part.job.max_outside >= part.rows == part.job.rows
        if may_join and is_open and groups[-1][0].job.options == part.job.options:
            groups[-1].append(part)
        else:
            groups.append([part])
        is_open = may_join
    return groups


def _outcomes(group: Sequence[Slice], answer: Answer, columns: Columns, first: int) -> list[Outcome]:
    """Return the outcome of each part of a group, whose rows begin at `first` in the columns of the pass."""
    outcomes, stop, values, is_finite = list[Outcome](), 0, deque(answer.outside), _finite(answer.prediction)
    for part in group:
        start, stop = stop, stop + part.rows
        outside: list[UnfamiliarValue] = []
        while values and values[0].row < stop:
            value = values.popleft()
            outside.append(replace(value, row=value.row - start) if start else value)
        rows = slice(start, stop)
        if not is_finite and not _finite(own := rows_of(answer.prediction, rows)):
            outcomes.append(_not_finite(part, own, columns, slice(first + start, first + stop)))
        elif len(group) == 1:
            outcomes.append(_outcome(part, answer.prediction, outside))
        else:
            outcomes.append(Answer(answer.prediction, outside[: part.job.max_outside], rows))
    return outcomes


def _outcome(part: Slice, prediction: AnyPrediction, outside: list[UnfamiliarValue]) -> Outcome:
    """Add the rows of a slice to its job; return the answer if they were the last."""
    job = part.job
    if part.rows == job.rows:
        return Answer(prediction, outside)
    job.parts.append(prediction)
    job.outside += [replace(value, row=part.start + value.row) for value in outside]
    job.done = part.stop
    return Answer(in_one(job.parts), job.outside) if job.done == job.rows else None


def _passing(error: BaseException) -> BaseException:
    """Return the error for the client: full memory is a passing state."""
    import torch  # here, because the service answers /healthz before torch is loaded

    if isinstance(error, torch.OutOfMemoryError):
        torch.cuda.empty_cache()
        return NotReadyError("The device's memory is full. Try again later, or send fewer rows.", retry_after=5)
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # PyTorch's allocator for the CPU
        return NotReadyError("The memory is full. Try again later, or send fewer rows.", retry_after=5)
    return error


def _finite(prediction: AnyPrediction) -> bool:
    """Return whether all numbers of a prediction are finite."""
    return all(np.isfinite(array).all() for array in arrays_of(prediction))


def _not_finite(part: Slice, prediction: AnyPrediction, columns: Columns, rows: slice) -> MurhoError:
    """Return the error of a slice, at some rows of a pass, with rows whose numbers aren't finite."""
    model, finite = part.job.model, np.ones(part.rows, dtype=bool)
    for array in arrays_of(prediction):
        finite &= np.isfinite(array).reshape(part.rows, -1).all(axis=1)
    broken = np.flatnonzero(~finite)
    # Numbers grow without bound only beyond the training range. Anywhere else it is our fault.
    outside = model.schema.outside({name: column[rows][broken] for name, column in columns.items()})
    if len({item.row for item in outside}) < len(broken):
        return ComputationError(
            f"Model {model.name!r}, version {model.version!r} gave an answer that isn't finite for "
            f"{len(broken)} rows, some of them within the training range."
        )
    return RowsNotFiniteError([(part.start + int(broken[item.row]), item.feature) for item in outside])
