"""The choices that the user has left open: the candidate that a search starts from, and the dimensions it searches.

The order of the dimensions is the order of the search: observation model and transform, as the task has them, then
encoding, whitening and temperature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.data.splits import folds_of
from murho.model.encoding.encodings import MIXED, PIECEWISE
from murho.model.encoding.input_choice import InputChoice
from murho.model.training.candidates import Candidate
from murho.model.training.quick import QUICK_TEMPERATURE
from murho.model.training.search_space import TEMPERATURES, SearchDimension
from murho.model.training.stages import has_few_rows
from murho.model.training.tasks import task_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from murho.model.encoding.whitening import Whitening
    from murho.model.fitting.training_data import TrainingData
    from murho.model.training.options import TrainOptions

__all__ = ["first_candidate", "open_dimensions"]

HIDDEN = (64, 64)
WELL_HIDDEN = 0.01
"""Whitening gets a trial if a direction of the standardised numbers has a variance below this. Fits find directions of
larger variance without whitening."""


def first_candidate(data: TrainingData, options: TrainOptions) -> Candidate:
    """The candidate that the search starts from: what the user has given, and the first value of every other choice."""
    temperature_path = not has_few_rows(len(data.split.training))
    first = QUICK_TEMPERATURE if options.quick else TEMPERATURES[1]
    return Candidate(
        noise=task_of(data.schema.target).first_likelihood(options),
        transform="none" if options.transform == "auto" else options.transform,
        encoding=_first_encoding(data, options) if options.encoding == "auto" else options.encoding,
        whitened=options.whiten == "yes" and _whitening(data) is not None,
        hidden=HIDDEN if options.hidden is None else options.hidden,
        temperature=options.temperature or (None if temperature_path else first),
    )


def open_dimensions(data: TrainingData, options: TrainOptions) -> Iterator[SearchDimension]:
    """The dimensions to search, in order: those that the user has not fixed."""
    few = has_few_rows(len(data.split.training))
    yield from task_of(data.schema.target).dimensions(data, options)
    # After the noise: many inputs together with a flexible density would overfit a small table.
    if (
        options.encoding == "auto"
        and _first_encoding(data, options) != MIXED
        and data.encoder(InputChoice(PIECEWISE)).bins
    ):
        yield SearchDimension("encoding", (PIECEWISE,))
    if options.whiten == "auto" and not few:
        whitening = _whitening(data)
        if whitening is not None and whitening.variances.min() < WELL_HIDDEN:
            yield SearchDimension("whitened", (True,))
    if few and options.temperature is None:
        yield SearchDimension("temperature", TEMPERATURES[2:], otherwise=TEMPERATURES[:1])


def _first_encoding(data: TrainingData, options: TrainOptions) -> str:
    """The encoding that the search starts from.

    It is the mixed one for classes of few rows, if numbers have bins and every row has judges of both kinds.
    """
    few, task = has_few_rows(len(data.split.training)), task_of(data.schema.target)
    both = options.members > folds_of(options.members)
    mixed = task.mixes_encodings and few and both and not options.quick
    return MIXED if mixed and data.encoder(InputChoice(PIECEWISE)).bins else "standard"


def _whitening(data: TrainingData) -> Whitening | None:
    """The whitened directions of the table; they are the same for every encoding."""
    return data.encoder(InputChoice("standard", whitened=True)).whitening
