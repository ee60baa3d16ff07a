"""The answer to a whole request for predictions, with what explains it.

An explanation asks for further rows (`model.evaluation.why`); the engine answers them as it does those of the request.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from murho.model.errors import OptionError
from murho.model.evaluation.why import PredictionRequests, missing_cells, rows_to_ask, why, worth_asking
from murho.service.errors import BadInputError, wrong
from murho.service.predict.answers import Codec, ParsedRequest, Result, warnings_of
from murho.service.predict.json_rows import Form, Inputs

if TYPE_CHECKING:
    from murho.model.predictive.prediction import AnyPrediction, PredictOptions
    from murho.model.tables.schema import Columns
    from murho.service.engine.jobs import ModelLike
    from murho.service.predict.in_flight import InFlight

ResultT = TypeVar("ResultT")

VALUE_BYTES = 32
"""Of an answer, while its passes are put together and encoded."""


async def predict(call: InFlight, parsed: ParsedRequest, writer: Codec) -> Result:
    """Return the answer to a request for predictions.

    Args:
        call: The request, in flight.
        parsed: What it asks for.
        writer: The codec of the answer.

    Raises:
        MurhoError: There is none; `errors.problem_details` has the HTTP status.
    """
    model, inputs = call.model, parsed.inputs
    options, record = call.options_to_compute(parsed, writer)
    further = further_rows(model, inputs.columns, options) if options.why or options.worth_asking else 0
    cost, incomplete = call.admit(inputs.count, options, parsed.request.timeout, inputs.columns, further)
    values = answer_values(inputs, options, model.schema.target.classes)
    call.take_rows(inputs)
    await call.reserve(VALUE_BYTES * values)
    answer = await call.compute(inputs, options, incomplete=incomplete, cost=None if further else cost)
    prediction, explained = answer.prediction, dict[str, Any]()
    if options.why:
        shares = await ask(call, why(model.schema, inputs.columns, prediction, options))
        explained["why"] = shares.document()
    if options.worth_asking:
        distribution = model.spec.encoder.distribution
        asking = worth_asking(distribution, model.schema, inputs.columns, prediction, options)
        explained["worth_asking"] = await ask(call, asking)
    call.count_answer(options)
    ids, warnings = None, warnings_of(answer.outside, parsed)
    if record:
        ids, unrecorded = await call.record(parsed, prediction, adapted=options.adapted)
        warnings += unrecorded
    return Result(model, parsed, prediction, warnings, values, ids, options.adapted, explained)


async def ask(call: InFlight, asking: PredictionRequests[ResultT]) -> ResultT:
    """Return the result of a generator that yields rows and receives predictions; the work of all is admitted.

    Raises:
        BadInputError: A row that is asked for has no finite answer.
        MurhoError: See `InFlight.compute`.
    """
    prediction: AnyPrediction | None = None
    while True:
        step, result = await call.in_thread(partial(_step_of, asking, prediction))
        if step is None:
            return cast("ResultT", result)
        columns, options = step
        inputs = Inputs(Form.COLUMNS, columns, len(next(iter(columns.values()))))
        try:
            prediction = (await call.compute(inputs, options, most_outside=0, again=True)).prediction
        except BadInputError:
            message = "A row is so far outside the training range that with other cells it has no finite answer."
            raise wrong("/inputs", message) from None


def answer_values(inputs: Inputs, options: PredictOptions, classes: tuple[str, ...] | None) -> int:
    """Return about how many values the answer for rows has, and not less."""
    of_class = 8 + 2 * len(options.percentiles) + len(options.thresholds) + options.samples * options.draws
    return inputs.count * (len(classes or (None,)) * of_class + 6 * len(inputs.columns) * options.why)


def further_rows(model: ModelLike, columns: Columns, options: PredictOptions) -> int:
    """Return how many rows have to be asked for, at most, besides those of a request.

    Raises:
        BadInputError: This model, or these options, can't be asked.
    """
    from murho.model.encoding.imputation import IMPUTATIONS  # here: it imports torch, and /healthz is answered before

    schema, distribution = model.schema, model.spec.encoder.distribution
    rows = 0
    if options.worth_asking:
        if not options.samples:
            raise wrong("/include", "worth_asking needs draws; ask for samples.")
        rows += IMPUTATIONS * len(missing_cells(distribution, schema, columns))
    if options.why:
        try:
            rows += rows_to_ask(schema, len(next(iter(columns.values()))))
        except OptionError as error:
            raise wrong("/include", f"{str(error)[:1].upper()}{str(error)[1:]}.") from None

    return rows


def _step_of(
    asking: PredictionRequests[Any], prediction: AnyPrediction | None
) -> tuple[tuple[Columns, PredictOptions] | None, Any]:
    """Return the next rows to ask for, with options, after that for those before; or None, and the result."""
    try:
        return next(asking) if prediction is None else asking.send(prediction), None
    except StopIteration as end:  # no future takes such an error
        return None, end.value
