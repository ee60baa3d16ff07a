"""`POST /aggregate` and its longer paths: sums, means and counts over the rows of a request, with error bars.

The body is that of a prediction, in every format that has rows. Rows are answered some at a time and added up, so an
answer takes no more memory for more rows (`model.predictive.totals`).
"""

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args

import numpy as np
from fastapi import Response
from pydantic import AfterValidator, Field

from murho.model.errors import OptionError
from murho.model.tables.schema_inference import MOST_WEIGHT
from murho.service.context import JSONBytes
from murho.service.engine.scheduler import PASS_SECONDS
from murho.service.errors import DeadlineError, wrong
from murho.service.predict.answers import InputWarning, ModelName, ParsedRequest, Terms, names_of
from murho.service.predict.in_flight import InFlight
from murho.service.predict.json_rows import pointer
from murho.service.predict.options import Cell, Included, Many, PredictRequest, ResponseModel
from murho.service.predict.routes import OF_MODELS, Endpoint, reader_of
from murho.service.tables.table_codec import TableCodec

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from murho.model.predictive.prediction import AnyPrediction
    from murho.model.predictive.totals import Totals
    from murho.model.tables.schema import Schema
    from murho.service.predict.json_rows import Inputs

ResultT = TypeVar("ResultT")


def _one(value: object) -> object:
    if isinstance(value, list | dict):
        raise ValueError("Expected a string, a number, true, false or null")  # noqa: TRY004 - as pydantic has it
    return value


Label = Annotated[Any, AfterValidator(_one)]
Weight = Annotated[float, Field(ge=0, le=MOST_WEIGHT, allow_inf_nan=False)]


class AggregateRequest(PredictRequest):
    """What is added up; everything else is as in a prediction."""

    by: list[str] | None = Field(None, max_length=100)
    """Features whose cells say which rows belong together. Without them and groups all rows do."""
    groups: Many[Label] | None = None
    """One label a row, in place of by. In JSON alone."""
    statistic: str | None = None
    """sum (default), mean or count_above; of a classifier count, of each class."""
    threshold: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Of count_above, in the target's unit."""
    weights: Many[Weight] | None = None
    """One number a row, such as a quantity, not negative. In JSON alone."""
    units: Many[Label] | None = None
    """One label a row, of a model trained with --group: the noise of rows of one unit is correlated, as far as
    held-out rows told. In JSON alone."""


class AggregateResponse(ResponseModel):
    """One entry a group, in the order of first rows; of a classifier a list over its classes."""

    model: ModelName
    target: str
    statistic: str
    samples: int
    seed: int
    by: list[str]
    groups: list[list[Cell]]
    rows: list[int]
    mean: list[Any]
    std: list[Any] | None
    epistemic_std: list[Any] | None
    aleatoric_std: list[Any] | None
    percentiles: dict[str, Any] | None
    exceedance: dict[str, Any] | None = None
    classes: list[str] | None = None
    calibrated: bool
    warnings: list[InputWarning]


async def _answer(call: InFlight) -> Response:
    reader, schema, service = reader_of(call.headers.get("content-type", "")), call.model.schema, call.service
    terms = Terms(call.query, schema, service.settings, AggregateRequest)
    for name in LISTS:
        if name in call.query and isinstance(reader, TableCodec):
            raise wrong(pointer(name), "A table has no place for it. Send JSON.")
    parsed = await call.decode(reader.decode, terms, unpacks=reader.unpacks)
    call.take_rows(parsed.inputs)
    try:
        document = await _document(call, parsed, cast("AggregateRequest", parsed.request))
        return await call.in_thread(partial(JSONBytes, document))
    except DeadlineError:
        raise DeadlineError(
            f"There was no answer in time: {call.rows} of {parsed.inputs.count} rows were computed. Send fewer rows, "
            "ask for fewer samples, or allow more time."
        ) from None
    except OptionError as error:
        # It names an option of the command line, and here that is a key.
        option, _, message = str(error).partition(": ")
        named = option.startswith("--")
        raise wrong(pointer(option[2:]) if named else "", message if named else str(error)) from None


ENDPOINT = Endpoint(
    "aggregate",
    tuple(f"{model}/aggregate" for model in OF_MODELS),
    "Add up predictions of",
    "Answers each group of rows with the sum, the mean or a count of new observations, and its error bars.",
    _answer,
    AggregateRequest,
    (AggregateResponse,),
    ("One column a feature; options are query parameters.", ""),
)


def _totals(schema: "Schema", parsed: ParsedRequest, own: AggregateRequest) -> "Totals":
    """Return totals without rows, once what the request says of each row is checked.

    Raises:
        BadInputError: A list can't be used.
        OptionError: An option can't be used.
    """
    from murho.model.predictive.totals import Totals, TotalsOptions, default_statistic

    totals = Totals.of(TotalsOptions(own.statistic or default_statistic(schema), own.threshold, parsed.options), schema)
    if any(getattr(parsed.options, name) for name in get_args(Included)):
        raise wrong("/include", "Totals have nothing to include; leave it out.")
    if own.record or own.ids is not None:
        raise wrong("/record", "Totals aren't recorded: outcomes are of rows. Leave it out.")
    if own.by and own.groups is not None:
        raise wrong("/groups", "Rows are grouped by features or by labels, not by both.")
    for name in LISTS:
        if getattr(own, name) is not None and len(getattr(own, name)) != parsed.inputs.count:
            raise wrong(pointer(name), f"Expected one for each of {parsed.inputs.count} rows.")
    return totals


LISTS = ("groups", "weights", "units")
"""What has one entry a row."""


async def _document(call: InFlight, parsed: ParsedRequest, own: AggregateRequest) -> dict[str, Any]:
    """Return the answer; rows are answered some at a time, and added up in a thread.

    Raises:
        OptionError: An option can't be used.
        MurhoError: See `InFlight.compute`.
    """
    model, inputs = call.model, parsed.inputs
    totals = await call.in_thread(partial(_totals, model.schema, parsed, own))
    call.admit(inputs.count, totals.asked, own.timeout)

    def add(answer: "AnyPrediction", inputs: "Inputs", labels: "Sequence[tuple[Any, ...]]") -> None:
        rows = slice(call.rows - inputs.count, call.rows)
        weights = None if own.weights is None else np.array(own.weights[rows], dtype=np.float64)
        totals.add(answer, inputs.columns, labels, weights, None if own.units is None else own.units[rows])

    for start in range(0, inputs.count, totals.rows_at_a_time):
        columns = {name: column[start : start + totals.rows_at_a_time] for name, column in inputs.columns.items()}
        some = replace(inputs, columns=columns, count=min(totals.rows_at_a_time, inputs.count - start))
        labels, new = await call.in_thread(partial(_labels, call, totals, own, some))
        call.admit_more(totals.group_cost(new))
        groups, rows = len(totals.groups) + new, start + some.count
        size = totals.memory(groups, rows, 0 if own.units is None else rows)
        await call.reserve(size, call.service.totals_budget)
        found = await call.compute(some, totals.asked, most_outside=0)
        await call.in_thread(partial(add, found.prediction, some, labels))
    alone, rest = None, await call.in_thread(lambda: totals.alone)
    call.admit_more(totals.count_cost)
    if rest is not None:
        firsts, options = rest
        few = replace(inputs, columns=firsts, count=len(next(iter(firsts.values()))))
        call.admit_more(model.cost(few.count, options))
        alone = (await call.compute(few, options, most_outside=0, again=True)).prediction
    work = totals.answer_in_parts(alone, model.spec.totals)
    while (result := await call.in_thread(partial(_continue, work))) is None:
        pass
    call.count_answer(parsed.options)
    call.counted.count_totals(totals.rows, len(totals.groups))
    classes = model.schema.target.classes
    return {
        **names_of(model),
        "statistic": totals.options.statistic,
        "by": own.by or [],
        **({} if classes is None else {"classes": classes}),
        **result.document(parsed.options),
    }


def _labels(
    call: InFlight, totals: "Totals", own: AggregateRequest, inputs: "Inputs"
) -> "tuple[list[tuple[Any, ...]], int]":
    """Return the group of each of the next rows, and how many of these groups are new.

    Raises:
        OptionError: There is no such feature, or there are too many groups.
    """
    from murho.model.predictive.totals import labels_of

    labels: list[tuple[Any, ...]]
    if own.groups is None:
        labels = labels_of(call.model.schema, inputs.columns, own.by or ())
    else:
        labels = [(label,) for label in own.groups[call.rows : call.rows + inputs.count]]
    new = len(set(labels) - totals.groups.keys())
    totals.check_groups(len(totals.groups) + new)
    return labels, new


def _continue(work: "Generator[None, None, ResultT]") -> "ResultT | None":
    """Go on with work that comes in parts, for a moment; return its result, None while some of it is left."""
    end = time.monotonic() + PASS_SECONDS
    try:
        while time.monotonic() < end:
            next(work)
    except StopIteration as stop:
        result: ResultT = stop.value
        return result
    return None
