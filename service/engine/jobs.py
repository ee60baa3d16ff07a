"""A job: one request for predictions as plain data, and its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from murho.model.checkpoint.spec import ModelSpec
    from murho.model.predictive.prediction import AnyPrediction, PredictOptions, Question
    from murho.model.tables.schema import Columns, Schema, UnfamiliarValue

__all__ = ["Answer", "Job", "ModelLike", "Slice", "Timing"]


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

    def rows_without_draws(self, columns: Columns, seconds: float) -> int:
        """Returns how many of the rows `[B]` take about so long without draws; the same at every call."""

    def cost(self, rows: int, options: PredictOptions) -> float:
        """Returns the work of an answer, in row-draws: one row under one draw of a plain answer is 1."""

    def predict_questions(self, columns: Columns, questions: Sequence[Question]) -> Sequence[AnyPrediction]:
        """Answers several questions about consecutive rows of canonical columns `[B]` in one pass.

        All questions have the same samples and seed.
        """

    def input_warnings(self, columns: Columns, *, told: NDArray[np.bool_] | None = None) -> list[UnfamiliarValue]:
        """Returns the values unlike the training rows; `told` marks the rows that have any, `[B]`."""

    def warm_up(self) -> None:
        """Makes the first prediction as fast as the next."""


@dataclass(slots=True)
class Timing:
    """Seconds that one job spent in the queue and in computation."""

    queue: float = 0.0
    compute: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A prediction, its warnings and its timing.

    Attributes:
        prediction: Finite arrays.
        outside: The first values unlike the training rows.
        timing: Time in the queue and in computation.
    """

    prediction: AnyPrediction
    outside: list[UnfamiliarValue]
    timing: Timing


@dataclass(slots=True, eq=False)
class Job:
    """Rows of one request, what is asked about them, and how far their computation has come.

    Attributes:
        model: The checkpoint that answers.
        columns: Canonical columns `[B]`, all features of the model's schema.
        options: Valid options.
        rows: B.
        cost: The work, in row-draws (`ModelLike.cost`).
        caller: Who asks. Callers take turns.
        deadline: Time on the scheduler's clock after which the answer is no longer wanted.
        max_outside: The most values unlike the training rows to return.
        future: Gets the answer or an error, in its own event loop.
        rows_of_pass: Rows in a pass of a job that shares none, as without draws; None: what its model's speed lets.
        submitted: When it was submitted, on the scheduler's clock.
        timing: Seconds in the queue and in computation so far.
        begun: When its first rows began to be computed, on the scheduler's clock; None: it waits.
        done: Number of rows computed so far.
        parts: The predictions of these rows, tile by tile.
        outside: The values unlike the training rows among them.
        over: Whether nobody waits for it any more. Set under the scheduler's lock.
        lane: What jobs must share to be answered in one pass: the checkpoint, the seed and the number of draws.
    """

    model: ModelLike
    columns: Columns
    options: PredictOptions
    rows: int
    cost: float
    caller: str
    deadline: float
    max_outside: int
    future: asyncio.Future[Answer]
    rows_of_pass: int | None = None
    submitted: float = 0.0
    timing: Timing = field(default_factory=Timing)
    begun: float | None = None
    done: int = 0
    parts: list[AnyPrediction] = field(default_factory=list)
    outside: list[UnfamiliarValue] = field(default_factory=list)
    over: bool = False
    lane: tuple[ModelLike, int | None, int] = field(init=False)

    def __post_init__(self) -> None:
        """Finds the lane."""
        seed = self.options.seed
        self.lane = self.model, self.model.spec.default_seed if seed is None else seed, self.options.samples


@dataclass(slots=True)
class Slice:
    """Consecutive rows of a job that are computed together: so many, from `start` on."""

    job: Job
    start: int
    rows: int

    @property
    def stop(self) -> int:
        """Where the next slice begins."""
        return self.start + self.rows
