"""`POST /aggregate` and its longer paths: sums, means and counts over the rows of a request, with error bars.

The body is that of a prediction, in every format that has rows. Rows are answered some at a time and added up, so an
answer takes no more memory for more rows (`model.predictive.totals`).
"""

import math
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import numpy as np
from fastapi import Response
from pydantic import BaseModel, Field

from murho.model.errors import OptionError, Problem
from murho.service.errors import BadInputError
from murho.service.parts import JSONBytes
from murho.service.predict.answers import Asked, InputWarning, ModelName
from murho.service.predict.formats import Coding, reader_of
from murho.service.predict.in_flight import InFlight
from murho.service.predict.json_requests import JSONCodec
from murho.service.predict.options import PredictRequest
from murho.service.predict.problems import MAX_LISTED, pointer
from murho.service.predict.routes import OF_MODELS, Door

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.predictive.prediction import PredictOptions
    from murho.model.predictive.totals import Totals
    from murho.model.tables.schema import Columns, Schema
    from murho.service.engine.jobs import Answer, Timing

    _Lists: TypeAlias = tuple[list[Any], NDArray[np.float64] | None, list[Any] | None]
    """Label, weight and unit of each row."""

__all__ = ["DOOR", "AggregateRequest"]

Cell = str | float | bool | None


class AggregateRequest(PredictRequest):
    """What is added up; everything else is as in a prediction."""

    by: list[str] | None = Field(
        None,
        max_length=100,
        description="Features whose cells say which rows belong together. Without them and groups all rows do.",
    )
    groups: list[Any] | None = Field(None, description="One label a row, in place of by. In JSON alone.")
    statistic: str | None = Field(
        None, description="sum (default), mean or count_above; of a classifier count, of each class."
    )
    threshold: Annotated[float, Field(allow_inf_nan=False)] | None = Field(
        None, description="Of count_above, in the target's unit."
    )
    weights: list[Any] | None = Field(
        None, description="One number a row, such as a quantity, not negative. In JSON alone."
    )
    units: list[Any] | None = Field(
        None,
        description="One label a row, of a model trained with --group: the noise of rows of one unit is correlated, as "
        "far as held-out rows told. In JSON alone.",
    )


class AggregateResponse(BaseModel):
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
    reader = reader_of(call.headers.get("content-type", ""))
    for name in () if isinstance(reader, JSONCodec) else LISTS:
        if name in call.query:
            raise BadInputError([Problem(pointer(name), "A table has no place for it. Send JSON.")])
    coding = Coding(reader, call.headers.get("content-encoding", ""), call.query)
    asked = await call.parts.decoder.decode(await call.body(), coding, call.model.schema, AggregateRequest)
    try:
        document = await _added_up(call, asked, cast("AggregateRequest", asked.request))
    except OptionError as error:
        raise _refused(error) from None
    return JSONBytes(document)


DOOR = Door(
    "aggregate",
    tuple(f"{model}/aggregate" for model in OF_MODELS),
    "Add up predictions of",
    "Answers each group of rows with the sum, the mean or a count of new observations, and its error bars.",
    _answer,
    AggregateRequest,
    (AggregateResponse,),
    ("One column a feature; options are query parameters.", ""),
)


def _refused(error: OptionError) -> BadInputError:
    """Returns an error of the totals, which names an option of the command line, with the pointer of its key."""
    option, _, message = str(error).partition(": ")
    named = option.startswith("--")
    return BadInputError([Problem(f"/{option[2:]}" if named else "", message if named else str(error))])


def _totals(schema: "Schema", asked: Asked, own: AggregateRequest) -> "tuple[Totals, _Lists]":
    """Returns totals without rows, and what the request says of each row.

    Raises:
        BadInputError: A list can't be used.
        OptionError: An option can't be used.
    """
    from murho.model.predictive.totals import Totals, TotalsOptions, default_statistic, labels_of

    count = asked.inputs.count
    options = TotalsOptions(own.statistic or default_statistic(schema), own.threshold, asked.options)
    totals = Totals.of(options, schema)
    if asked.options.draws or asked.options.mc_error:
        raise BadInputError([Problem("/include", "Totals have no draws or Monte Carlo errors; leave it out.")])
    if own.by and own.groups is not None:
        raise BadInputError([Problem("/groups", "Rows are grouped by features or by labels, not by both.")])
    for name, (fits, expected) in LISTS.items():
        values = getattr(own, name) or ()
        if getattr(own, name) is not None and len(values) != count:
            raise BadInputError([Problem(pointer(name), f"Expected one for each of {count} rows.")])
        wrong = islice((place for place, value in enumerate(values) if not fits(value)), MAX_LISTED)
        problems = [Problem(pointer(name, place), f"Expected {expected}.") for place in wrong]
        if problems:
            raise BadInputError(problems)
    labels: Any = labels_of(schema, asked.inputs.columns, own.by or ())
    if own.groups is not None:
        labels = [(label,) for label in own.groups]
    weights = None if own.weights is None else np.array(own.weights, dtype=np.float64)
    return totals, (labels, weights, own.units)


def _is_weight(value: object) -> bool:
    return type(value) in (int, float) and 0.0 <= value < math.inf  # type: ignore[operator]


def _is_label(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


_Label = (_is_label, "a string, a number, true, false or null")
LISTS = {"groups": _Label, "weights": (_is_weight, "a finite number that is not negative"), "units": _Label}
"""What has one entry a row: what fits, and what it is for messages."""


async def _added_up(call: InFlight, asked: Asked, own: AggregateRequest) -> dict[str, Any]:
    """Returns the answer as JSON data: rows are answered some at a time, and added up in a thread.

    Raises:
        OptionError: An option can't be used.
        MurhoError: See `InFlight.compute`.
    """
    inputs, parts, model = asked.inputs, call.parts, call.model
    totals, (labels, weights, units) = await parts.decoder.in_thread(partial(_totals, model.schema, asked, own))
    call.admit(inputs.count, totals.asked, own.timeout)
    timing: Timing | None = None

    async def predicted(columns: "Columns", options: "PredictOptions", first: int = 0) -> "Answer":
        part = replace(inputs, columns=columns, count=len(next(iter(columns.values()))))
        cost = model.cost(part.count, options)
        found = await call.compute(part, options, cost, first=first, most_outside=0)
        call.done(cost)
        return found

    for start in range(0, inputs.count, totals.rows_at_a_time):
        rows = slice(start, start + totals.rows_at_a_time)
        columns = {name: column[rows] for name, column in inputs.columns.items()}
        found = await predicted(columns, totals.asked, start)
        of_rows = weights if weights is None else weights[rows], units if units is None else units[rows]
        await parts.decoder.in_thread(partial(totals.add, found.prediction, columns, labels[rows], *of_rows))
        parts.telemetry.record_rows(model.name, model.version, len(found.prediction), found.prediction)
        timing = timing or found.timing
    alone = None if totals.alone is None else (await predicted(*totals.alone)).prediction
    assert timing is not None  # noqa: S101 - there is at least one row
    call.answered(inputs.count, asked.options, timing)
    parts.telemetry.record_timing(model.name, model.version, timing, warned=False)
    answered = await parts.decoder.in_thread(lambda: totals.answer(alone, model.spec.totals))
    classes = model.schema.target.classes
    return {
        "model": {"name": model.name, "version": model.version},
        "target": model.schema.target.name,
        "statistic": totals.options.statistic,
        "by": own.by or [],
        **({} if classes is None else {"classes": classes}),
        **answered.document(asked.options),
    }
