"""`POST /aggregate` and its longer paths: sums, means and counts over the rows of a request, with error bars.

The body is that of a prediction, in every format that has rows. Rows are answered some at a time and added up, so an
answer takes no more memory for more rows (`model.predictive.totals`).
"""

import math
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import QueryParams

from murho.model.errors import OptionError, Problem
from murho.service.engine.jobs import RowsNotFiniteError
from murho.service.errors import BadInputError
from murho.service.parts import Parts, PartsDependency
from murho.service.predict.answers import Asked, InputWarning, ModelName
from murho.service.predict.formats import Coding, reader_of
from murho.service.predict.in_flight import InFlight, bad_rows
from murho.service.predict.json_requests import JSONCodec, load_json
from murho.service.predict.options import check_options, predict_options, value_of_text
from murho.service.predict.problems import MAX_LISTED, pointer
from murho.service.predict.rows import parse_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.predictive.totals import Totals
    from murho.service.engine.jobs import ModelLike, Timing

    _Lists: TypeAlias = tuple[list[Any], NDArray[np.float64] | None, list[Any] | None]
    """Label, weight and unit of each row."""

__all__ = ["AggregateRequest", "router"]

router = APIRouter(tags=["predict"])

Cell = str | float | bool | None


class AggregateRequest(BaseModel):
    """What is added up; everything else is as in a prediction."""

    model_config = ConfigDict(strict=True, extra="forbid")

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


EXTRA: dict[str, Any] = {"responses": {200: {"model": AggregateResponse}}}


@router.post("/aggregate", summary="Add up predictions of the only model, or the default one", **EXTRA)
async def _aggregate(request: Request, parts: PartsDependency) -> Response:
    """Answers each group of rows with the sum, the mean or a count of new observations, and its error bars."""
    return await answer(request, parts)


@router.post("/models/{name}/aggregate", summary="Add up predictions of the latest version of a model", **EXTRA)
async def _aggregate_with_model(request: Request, parts: PartsDependency, name: str) -> Response:
    """Answers like POST /aggregate, from the named model."""
    return await answer(request, parts, name)


@router.post(
    "/models/{name}/versions/{version}/aggregate", summary="Add up predictions of one version of a model", **EXTRA
)
async def _aggregate_with_version(request: Request, parts: PartsDependency, name: str, version: str) -> Response:
    """Answers like POST /aggregate, from the named version of the named model."""
    return await answer(request, parts, name, version)


async def answer(request: Request, parts: Parts, name: str | None = None, version: str | None = None) -> Response:
    """Answers one request for totals.

    Args:
        request: The request.
        parts: The parts of the service.
        name: The model; None for the default one.
        version: Its version; None for the latest.

    Raises:
        MurhoError: There is no answer; `errors.problem_details` has the HTTP status.
    """
    with InFlight(parts, request.scope, request.receive) as call:
        model = call.find(name, version)
        asked = await _read(call, parts, model, QueryParams(request.scope["query_string"]))
        try:
            document = await _added_up(call, model, asked)
        except OptionError as error:
            raise _refused(error) from None
        return Response(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


@dataclass(frozen=True, slots=True)
class _Asked(Asked):
    """What a request asks for: that of a prediction, and of the totals."""

    own: AggregateRequest = field(default_factory=lambda: AggregateRequest.model_validate({}))


async def _read(call: InFlight, parts: Parts, model: "ModelLike", query: QueryParams) -> _Asked:
    """Returns what is asked for; a document has its options within, a table in the query."""
    reader = reader_of(call.headers.get("content-type", ""))
    encoding = call.headers.get("content-encoding", "")
    schema, settings = model.schema, parts.settings
    names = set(AggregateRequest.model_fields)
    if isinstance(reader, JSONCodec):
        if query:
            raise BadInputError([Problem("", "With a JSON body, options are keys of the document, not of the query.")])

        def read(body: bytes) -> _Asked:
            document = load_json(body, settings.max_json_bytes)
            own = _checked({name: document.pop(name) for name in names & document.keys()})
            request = check_options(document, rows=True)
            inputs = parse_inputs(request.inputs, schema, settings.max_rows)
            return _Asked(inputs, predict_options(request, settings, schema.target), request.timeout, own)

        return await parts.decoder.decode(await call.body(), encoding, schema, read)
    given = {name: text for name, text in query.items() if name in names}
    for name in LISTS:
        if name in given:
            raise BadInputError([Problem(pointer(name), "A table has no place for it. Send JSON.")])
    values = {name: value_of_text(text) for name, text in given.items() if name != "by"}
    own = _checked(values | ({"by": given["by"].split(",")} if "by" in given else {}))
    others = {name: text for name, text in query.items() if name not in names}
    rows = await parts.decoder.decode_request(await call.body(), Coding(reader, encoding, others), schema)
    return _Asked(rows.inputs, rows.options, rows.timeout, own)


def _checked(given: dict[str, Any]) -> AggregateRequest:
    try:
        return AggregateRequest.model_validate(given)
    except ValidationError as error:
        problems = (Problem(pointer(*item["loc"][:2]), f"{item['msg']}.") for item in error.errors()[:100])
        raise BadInputError(problems) from None


def _refused(error: OptionError) -> BadInputError:
    """Returns an error of the totals, which names an option of the command line, with the pointer of its key."""
    option, _, message = str(error).partition(": ")
    named = option.startswith("--")
    return BadInputError([Problem(f"/{option[2:]}" if named else "", message if named else str(error))])


def _totals(model: "ModelLike", asked: _Asked) -> "tuple[Totals, _Lists]":
    """Returns totals without rows, and what the request says of each row.

    Raises:
        BadInputError: A list can't be used.
        OptionError: An option can't be used.
    """
    from murho.model.predictive.totals import Totals, TotalsOptions, default_statistic, labels_of

    own, schema, count = asked.own, model.schema, asked.inputs.count
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


async def _added_up(call: InFlight, model: "ModelLike", asked: _Asked) -> dict[str, Any]:
    """Returns the answer as JSON data: rows are answered some at a time, and added up in a thread.

    Raises:
        OptionError: An option can't be used.
        MurhoError: See `InFlight.compute`.
    """
    inputs, parts = asked.inputs, call.parts
    totals, (labels, weights, units) = await parts.decoder.in_thread(partial(_totals, model, asked))
    call.admit(model, inputs.count, totals.asked)
    deadline = call.deadline(asked.timeout)
    timing: Timing | None = None
    for start in range(0, inputs.count, totals.rows_at_a_time):
        rows = slice(start, min(inputs.count, start + totals.rows_at_a_time))
        columns = {name: column[rows] for name, column in inputs.columns.items()}
        part = replace(inputs, columns=columns, count=rows.stop - rows.start)
        cost = model.cost(part.count, totals.asked)
        try:
            found = await call.compute(model, part, totals.asked, cost, deadline, 0)
        except RowsNotFiniteError as error:
            raise bad_rows(error, inputs, start) from None
        of_rows = weights if weights is None else weights[rows], units if units is None else units[rows]
        await parts.decoder.in_thread(partial(totals.add, found.prediction, columns, labels[rows], *of_rows))
        call.done(cost)
        parts.telemetry.record_rows(model.name, model.version, part.count, found.prediction)
        timing = timing or found.timing
    alone = None
    if totals.alone is not None:
        first, options = totals.alone
        few = replace(inputs, columns=first, count=len(next(iter(first.values()))))
        alone = (await call.compute(model, few, options, model.cost(few.count, options), deadline, 0)).prediction
    assert timing is not None  # noqa: S101 - there is at least one row
    call.answered(model, inputs.count, asked.options, timing)
    parts.telemetry.record_timing(model.name, model.version, timing, warned=False)
    answered = await parts.decoder.in_thread(lambda: totals.answer(alone, model.spec.totals))
    classes = model.schema.target.classes
    return {
        "model": {"name": model.name, "version": model.version},
        "target": model.schema.target.name,
        "statistic": totals.options.statistic,
        "by": asked.own.by or [],
        **({} if classes is None else {"classes": classes}),
        **answered.document(asked.options),
    }
