"""Questions about rows of one batch that share a forward pass: which are alike, and whose rows an answer is.

Questions with equal options are a group, which is answered at once. So what a question costs on top of its rows is a
few slices of arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.predictive.prediction import Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from murho.model.predictive.prediction import PredictOptions
    from murho.model.predictive.target_models import AnyPrediction

__all__ = [
    "Group",
    "groups_of",
    "in_one",
    "questions_about",
    "split",
    "validate_questions",
]


@dataclass(frozen=True, slots=True)
class Group:
    """Questions with equal options.

    Attributes:
        options: Their options.
        rows: Their rows: a slice, or the rising numbers of the rows ``[n]``.
        places: Place of each question among all questions, rising.
        counts: Number of rows of each.
    """

    options: PredictOptions
    rows: slice | NDArray[np.intp]
    places: tuple[int, ...]
    counts: tuple[int, ...]

    def within(self, start: int, stop: int) -> slice | NDArray[np.intp] | None:
        """The group's rows among the rows ``start`` to ``stop`` of the batch, counted from ``start``; None: no row."""
        if isinstance(self.rows, slice):
            first, last = max(self.rows.start, start), min(self.rows.stop, stop)
            return slice(first - start, last - start) if first < last or start == stop else None
        first, last = np.searchsorted(self.rows, (start, stop))
        return self.rows[first:last] - start if first < last else None


def validate_questions(questions: Sequence[Question], rows: int, default_seed: int) -> int:
    """Check that questions can share a pass, and return their seed.

    Args:
        questions: The questions.
        rows: B, the rows of the batch.
        default_seed: The seed of questions without one.

    Raises:
        ValueError: The questions do not cover the rows one after the other, or differ in samples or seed.
    """
    stop, kinds = 0, set()
    for question in questions:
        if question.rows.start != stop or question.rows.stop < stop + (rows > 0):
            raise ValueError(f"questions have consecutive rows, at least one: after row {stop} came {question.rows}")
        stop = question.rows.stop
        options = question.options
        kinds.add((options.samples, default_seed if options.seed is None else options.seed))
    if stop != rows or len(kinds) != 1:
        raise ValueError(f"questions share samples and seed and cover {rows} rows, not {stop} rows with {kinds}")
    ((_, seed),) = kinds
    return seed


def groups_of(questions: Sequence[Question]) -> list[Group]:
    """Put questions with equal options together."""
    if len(questions) == 1:
        (only,) = questions
        return [Group(only.options, only.rows, (0,), (only.rows.stop - only.rows.start,))]
    alike: dict[PredictOptions, list[int]] = {}
    for place, question in enumerate(questions):
        alike.setdefault(question.options, []).append(place)
    groups = []
    for options, places in alike.items():
        parts = [questions[place].rows for place in places]
        counts = tuple(part.stop - part.start for part in parts)
        rows: slice | NDArray[np.intp] = slice(parts[0].start, parts[-1].stop)
        if sum(counts) < parts[-1].stop - parts[0].start:
            rows = np.concatenate([np.arange(part.start, part.stop) for part in parts])
        groups.append(Group(options, rows, tuple(places), counts))
    return groups


def questions_about(questions: Sequence[Question], rows: NDArray[np.intp]) -> Iterator[tuple[int, slice, Question]]:
    """The questions about some of the rows, as questions about a batch of these rows alone.

    Args:
        questions: Questions about B rows.
        rows: Rising numbers of rows.

    Yields:
        Place of the question, which of ``rows`` are its own, and the question about them.
    """
    for place, question in enumerate(questions):
        first, last = (int(end) for end in np.searchsorted(rows, (question.rows.start, question.rows.stop)))
        if first < last:
            yield place, slice(first, last), Question(slice(first, last), question.options)


def in_one(parts: Sequence[AnyPrediction], order: NDArray[np.intp] | None = None) -> AnyPrediction:
    """Join the predictions of groups of rows.

    Args:
        parts: Predictions of some rows each.
        order: The order of all their rows in the result, ``[B]``; None: one part's rows after the other's.
    """
    if len(parts) == 1 and order is None:
        return parts[0]
    joined: AnyPrediction = _joined(parts, slice(None) if order is None else order)
    return joined


def _joined(parts: Sequence[Any], order: slice | NDArray[np.intp]) -> Any:
    """Join the arrays of the same dataclass, ``[B, …]``, and of those within it."""
    changes: dict[str, Any] = {}
    for field in fields(parts[0]):
        values = [getattr(part, field.name) for part in parts]
        if isinstance(values[0], np.ndarray):
            changes[field.name] = np.concatenate(values)[order]
        elif is_dataclass(values[0]):
            changes[field.name] = _joined(values, order)
    return replace(parts[0], **changes)


def split(group: Group, prediction: AnyPrediction) -> Iterator[tuple[int, AnyPrediction]]:
    """Divide the prediction for the rows of a group among its questions.

    Yields:
        Place of the question, and its prediction, whose arrays are views.
    """
    if len(group.places) == 1:
        yield group.places[0], prediction
        return
    facts: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for field in fields(prediction):
        value = getattr(prediction, field.name)
        (arrays if isinstance(value, np.ndarray) else facts)[field.name] = value
    errors, kind = prediction.mc_error, type(prediction)
    start = 0
    for place, count in zip(group.places, group.counts, strict=True):
        rows = slice(start, start + count)
        start += count
        own: dict[str, Any] = {name: array[rows] for name, array in arrays.items()}
        if errors is not None:
            of_errors = {field.name: getattr(errors, field.name)[rows] for field in fields(errors)}
            own["mc_error"] = type(errors)(**of_errors)
        yield place, kind(**{**facts, **own})
