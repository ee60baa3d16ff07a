"""The core of the service, free of any protocol: arrays and options in, a prediction out.

Every protocol adapter calls this and nothing below it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from murho.model.errors import MurhoError
from murho.service.errors import ClientGoneError, ComputationError, NotReadyError, TooLargeError
from murho.service.scheduler import Timing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns, Schema, UnfamiliarValue
    from murho.model.engines.prediction import Prediction, PredictOptions
    from murho.model.posterior.model_spec import ModelSpec
    from murho.service.scheduler import Abandoned, Scheduler

__all__ = ["Answer", "ModelLike", "Predictor", "RowsNotFiniteError"]

# Row-draws computed between two checks that the client still waits: about a second on a slow processor.
CHUNK_COST = 2**20
NUMBERS = ("mean", "std", "epistemic_std", "aleatoric_std", "percentiles", "exceedance", "draws")


class ModelLike(Protocol):
    """The interface of a loaded checkpoint; `model.posterior.posterior.Posterior` implements it."""

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

    def predict(self, columns: Columns, options: PredictOptions) -> Prediction:
        """Returns the prediction for canonical columns `[B]`."""

    def input_warnings(
        self, columns: Columns, limit: int | None = None, *, among: NDArray[np.bool_] | None = None
    ) -> list[UnfamiliarValue]:
        """Returns the first `limit` values unlike the training rows; `among` marks the rows that have any, `[B]`."""

    def warm_up(self) -> None:
        """Makes the first prediction as fast as the next."""


class RowsNotFiniteError(MurhoError):
    """Some rows are so far outside the training range that the arithmetic overflows.

    Attributes:
        cells: Row and feature of each value outside the range in these rows.
    """

    def __init__(self, cells: list[tuple[int, str]]) -> None:
        super().__init__("The prediction isn't finite: some values are too far outside the training range.")
        self.cells = cells


@dataclass(frozen=True, slots=True)
class Answer:
    """A prediction, its warnings and its timing.

    Attributes:
        prediction: Finite arrays in the target's unit.
        outside: The first values unlike the training rows.
        timing: Time in the queue and in computation.
    """

    prediction: Prediction
    outside: list[UnfamiliarValue]
    timing: Timing = field(default_factory=Timing)


class Predictor:
    """Computes predictions, one at a time.

    Args:
        scheduler: Admits and runs the work.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    async def predict(
        self,
        model: ModelLike,
        columns: Columns,
        options: PredictOptions,
        *,
        max_outside: int = 0,
        deadline: float | None = None,
    ) -> Answer:
        """Returns the prediction for a batch of rows.

        Args:
            model: The checkpoint.
            columns: Canonical columns `[B]`, all features of the model's schema.
            options: Valid options.
            max_outside: The most values unlike the training rows to return.
            deadline: Time on the scheduler's clock after which the answer is no longer wanted.

        Raises:
            RowsNotFiniteError: The answer isn't finite for rows far outside the training range.
            ComputationError: The answer isn't finite for rows within the training range.
            TooLargeError, QueueFullError, DeadlineError, NotReadyError: Raised by `Scheduler.run`.
        """
        rows = len(next(iter(columns.values())))
        # Monte Carlo standard errors need a second pass over the draws.
        cost = max(options.samples, 1) * (2 if options.mc_error else 1)
        most = self.scheduler.max_pending_cost // cost
        if rows > most:
            raise TooLargeError(
                f"{rows} rows at {cost} row-draws each are more than this service takes at once, "
                f"{self.scheduler.max_pending_cost} row-draws. Send at most {most} rows, or ask for fewer samples."
            )
        per_chunk = max(1, CHUNK_COST // cost)
        timing = Timing()

        def work(abandoned: Abandoned) -> tuple[Prediction, list[UnfamiliarValue]]:
            chunks = []
            for start in range(0, rows, per_chunk):
                if abandoned():
                    raise ClientGoneError("Nobody waits for the answer any more.")
                chunk = {name: column[start : start + per_chunk] for name, column in columns.items()}
                chunks.append(_predict(model, chunk, options))
            prediction = chunks[0] if len(chunks) == 1 else _joined(chunks)
            _require_finite(model, columns, prediction)
            return prediction, model.input_warnings(columns, max_outside, among=prediction.outside)

        prediction, outside = await self.scheduler.run(work, cost=rows * cost, deadline=deadline, timing=timing)
        return Answer(prediction, outside, timing)


def _predict(model: ModelLike, columns: Columns, options: PredictOptions) -> Prediction:
    """Returns the prediction; raises NotReadyError if the device's memory is full, which is a passing state."""
    import torch  # here, because the service answers /healthz before torch is loaded

    try:
        return model.predict(columns, options)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        raise NotReadyError(
            "The device's memory is full. Try again later, or send fewer rows.", retry_after=5
        ) from None


def _joined(chunks: list[Prediction]) -> Prediction:
    """Joins the predictions of consecutive chunks of rows."""
    joined: dict[str, Any] = {}
    for name in (*NUMBERS, "outside"):
        parts = [getattr(chunk, name) for chunk in chunks]
        joined[name] = None if parts[0] is None else np.concatenate(parts)
    errors = [chunk.mc_error for chunk in chunks if chunk.mc_error is not None]
    if errors:
        whole = {
            part.name: np.concatenate([getattr(error, part.name) for error in errors]) for part in fields(errors[0])
        }
        joined["mc_error"] = replace(errors[0], **whole)
    return replace(chunks[0], **joined)


def _require_finite(model: ModelLike, columns: Columns, prediction: Prediction) -> None:
    finite = np.ones(len(prediction.mean), dtype=bool)
    arrays = [getattr(prediction, name) for name in NUMBERS]
    if prediction.mc_error is not None:
        arrays += [getattr(prediction.mc_error, part.name) for part in fields(prediction.mc_error)]
    for array in arrays:
        if array is not None:
            finite &= np.isfinite(array).reshape(len(finite), -1).all(axis=1)
    if finite.all():
        return
    broken = np.flatnonzero(~finite)
    # Numbers grow without bound only beyond the training range. Anywhere else, such as in a gap, it is our fault.
    outside = model.schema.outside({name: column[broken] for name, column in columns.items()})
    explained = {item.row for item in outside}
    if len(explained) < len(broken):
        raise ComputationError(
            f"Model {model.name!r}, version {model.version!r} gave an answer that isn't finite for "
            f"{len(broken)} rows, some of them within the training range."
        )
    raise RowsNotFiniteError([(int(broken[item.row]), item.feature) for item in outside])
