"""What explains an answer beside its numbers: `why` and `worth_asking`, which ask the model for further rows.

The statistics are in `model.evaluation.why`, as generators of rows to ask for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murho.model.errors import OptionError, Problem
from murho.model.evaluation.why import missing_cells, rows_to_ask, why, worth_asking
from murho.service.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from murho.model.evaluation.why import Asking, Why
    from murho.model.predictive.prediction import AnyPrediction, PredictOptions
    from murho.model.tables.schema import Columns
    from murho.service.engine.jobs import ModelLike

__all__ = ["Ended", "Further", "further_rows", "step_of"]


@dataclass(frozen=True, slots=True)
class Further:
    """What has to be asked for besides the rows of a request.

    Attributes:
        rows: How many further rows, at most.
        askings: Returns, for the prediction of the request's rows, the keys of the answer and how each comes about.
    """

    rows: int
    askings: Callable[[AnyPrediction], Iterator[tuple[str, Asking[dict[str, Any] | list[Any]]]]]


def further_rows(model: ModelLike, columns: Columns, options: PredictOptions) -> Further:
    """Returns what the options ask for.

    Raises:
        BadInputError: This model, or these options, can't be asked.
    """
    from murho.model.encoding.imputation import IMPUTATIONS  # here: it imports torch, and /healthz is answered before

    schema, distribution = model.schema, model.spec.encoder.distribution
    rows = 0
    if options.worth_asking:
        if not options.samples:
            raise BadInputError([Problem("/include", "worth_asking needs draws; ask for samples.")])
        rows += IMPUTATIONS * len(missing_cells(distribution, schema, columns))
    if options.why:
        try:
            rows += rows_to_ask(schema, len(next(iter(columns.values()))))
        except OptionError as error:
            raise BadInputError([Problem("/include", f"{str(error)[:1].upper()}{str(error)[1:]}.")]) from None

    def askings(prediction: AnyPrediction) -> Iterator[tuple[str, Asking[Any]]]:
        if options.why:
            yield "why", _document(why(schema, columns, prediction, options))
        if options.worth_asking:
            yield "worth_asking", worth_asking(distribution, schema, columns, prediction, options)

    return Further(rows, askings)


def _document(asking: Asking[Why]) -> Asking[dict[str, Any]]:
    return (yield from asking).document()


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of what was asked."""

    result: Any


def step_of(asking: Asking[Any], prediction: AnyPrediction | None) -> tuple[Columns, PredictOptions] | Ended:
    """Returns the next rows to ask for, with options, after the prediction for those before; or the result."""
    try:
        return next(asking) if prediction is None else asking.send(prediction)
    except StopIteration as end:  # no future takes such an error
        return Ended(end.value)
