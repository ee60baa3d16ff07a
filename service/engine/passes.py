"""One pass of the engine: rows of several requests to one checkpoint, with the same seed and number of draws.

They share one encoding and one run of the network; requests with the same options also share their question. The answer
for a row does not depend on what else is in the pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.errors import MurhoError
from murho.model.predictive.prediction import Question, arrays_of, in_one
from murho.model.tables.schema import UnfamiliarValue
from murho.service.engine.jobs import Answer
from murho.service.errors import ComputationError, NotReadyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.predictive.prediction import AnyPrediction
    from murho.model.tables.schema import Columns
    from murho.service.engine.jobs import Slice
    from murho.service.engine.scheduler import Outcome

__all__ = ["RowsNotFiniteError", "compute"]


class RowsNotFiniteError(MurhoError):
    """Some rows are so far outside the training range that the arithmetic overflows.

    Attributes:
        cells: Row and feature of each value outside the range in these rows.
    """

    def __init__(self, cells: list[tuple[int, str]]) -> None:
        super().__init__("The prediction isn't finite: some values are too far outside the training range.")
        self.cells = cells


def compute(slices: Sequence[Slice]) -> list[Outcome]:
    """Computes one pass.

    Args:
        slices: Rows of jobs of one lane (`Job.lane`).

    Returns:
        One outcome for each slice. One that fails harms no other.
    """
    try:
        return _compute(slices)
    except BaseException as error:  # the compute thread outlives any job; the caller gets the error
        if len(slices) == 1:
            return [_passing(error)]
    return [outcome for part in slices for outcome in compute([part])]


def _compute(slices: Sequence[Slice]) -> list[Outcome]:
    model, columns = slices[0].job.model, _columns(slices)
    questions, stop = [], 0
    for part in slices:
        start, stop = stop, stop + part.rows
        questions.append(Question(slice(start, stop), part.job.options))
    predictions = model.predict_questions(columns, questions)
    finite = _finite(predictions)
    told = [prediction.told if fine else None for prediction, fine in zip(predictions, finite, strict=True)]
    unlike = _unlike(slices, columns, told)
    return [
        _outcome(part, prediction, values) if fine else _not_finite(part, prediction, columns, question.rows)
        for part, question, prediction, fine, values in zip(slices, questions, predictions, finite, unlike, strict=True)
    ]


def _columns(parts: Sequence[Slice]) -> Columns:
    if len(parts) > 1:
        return {
            name: np.concatenate([part.job.columns[name][part.start : part.stop] for part in parts])
            for name in parts[0].job.columns
        }
    (only,) = parts
    if only.rows == only.job.rows:
        return only.job.columns
    return {name: column[only.start : only.stop] for name, column in only.job.columns.items()}


def _unlike(
    slices: Sequence[Slice], columns: Columns, told: Sequence[NDArray[np.bool_] | None]
) -> list[list[UnfamiliarValue]]:
    """Returns the values of each slice that are unlike the training rows, with rows counted within its job.

    They are searched together, because most of a search's time is the same for one row and for many.

    Args:
        slices: The rows of the pass.
        columns: All their cells.
        told: Which rows of each slice have any such value.
    """
    found: list[list[UnfamiliarValue]] = [[] for _ in slices]
    rooms = [part.job.max_outside - len(part.job.outside) for part in slices]
    cells: list[tuple[int, int, int]] = []
    start = 0
    for place, (part, rows, room) in enumerate(zip(slices, told, rooms, strict=True)):
        if rows is not None:
            cells += [(start + row, place, part.start + row) for row in rows.nonzero()[0][:room].tolist()]
        start += part.rows
    if cells:
        numbers = [number for number, _, _ in cells]
        those = {name: column[numbers] for name, column in columns.items()}
        for value in slices[0].job.model.input_warnings(those):
            _, place, row = cells[value.row]
            if len(found[place]) < rooms[place]:
                found[place].append(UnfamiliarValue(row, value.feature, value.message))
    return found


def _outcome(part: Slice, prediction: AnyPrediction, outside: list[UnfamiliarValue]) -> Outcome:
    """Adds the rows of a slice to its job; returns the answer if they were the last."""
    job = part.job
    if part.rows == job.rows:
        return Answer(prediction, outside, job.timing)
    job.parts.append(prediction)
    job.outside += outside
    job.done = part.stop
    return Answer(in_one(job.parts), job.outside, job.timing) if job.done == job.rows else None


def _passing(error: BaseException) -> BaseException:
    """Returns the error for the client: full memory is a passing state."""
    import torch  # here, because the service answers /healthz before torch is loaded

    if isinstance(error, torch.OutOfMemoryError):
        torch.cuda.empty_cache()
        return NotReadyError("The device's memory is full. Try again later, or send fewer rows.", retry_after=5)
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # PyTorch's allocator for the CPU
        return NotReadyError("The memory is full. Try again later, or send fewer rows.", retry_after=5)
    return error


def _finite(predictions: Sequence[AnyPrediction]) -> list[bool]:
    """Returns whether all numbers of each prediction of a pass are finite; they share arrays, searched once."""
    arrays = [array for prediction in predictions for array in arrays_of(prediction)]
    owners = [array.base if isinstance(array.base, np.ndarray) else array for array in arrays]
    for owner in dict(zip(map(id, owners), owners, strict=True)).values():
        if not np.isfinite(owner).all():
            break
    else:
        return [True] * len(predictions)
    return [all(np.isfinite(array).all() for array in arrays_of(prediction)) for prediction in predictions]


def _not_finite(part: Slice, prediction: AnyPrediction, columns: Columns, rows: slice) -> MurhoError:
    """Returns the error of a slice, at some rows of a pass, with rows whose numbers aren't finite."""
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
