"""`POST /models/{name}/counterfactual`: the nearest rows to a given one whose answer reaches a goal.

The search is `model.evaluation.counterfactual`; its rows are answered like those of any request.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import Response
from pydantic import Field

from murho.model.errors import OptionError
from murho.model.evaluation.counterfactual import MOST_ROWS, Counterfactual, Goal, counterfactuals
from murho.service.context import JSONBytes
from murho.service.errors import wrong
from murho.service.predict.answers import ModelName, ParsedRequest, Terms, names_of
from murho.service.predict.in_flight import InFlight
from murho.service.predict.json_bodies import document_of
from murho.service.predict.json_rows import Problems, cells_of, explain_unknown, parse_inputs, pointer
from murho.service.predict.options import (
    CommonOptions,
    RecordOptions,
    ResponseModel,
    predict_options,
    validate_document,
)
from murho.service.predict.predictions import ask
from murho.service.predict.routes import OF_MODELS, Endpoint

if TYPE_CHECKING:
    from murho.service.engine.jobs import ModelLike

MOST_FOUND = 10


class CounterfactualRequest(CommonOptions):
    """A row, and what its answer shall be. Null stands for an option that is not given."""

    inputs: Any
    """One row: an object with a value for each feature."""
    goal: Goal
    fixed: list[str] = Field([], max_length=10_000)
    """Features whose cells stay as they are."""
    count: int = Field(3, ge=1, le=MOST_FOUND)
    """How many rows; each changes another set of cells."""
    noise: bool | None = None
    """As in a prediction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ParsedRequest(ParsedRequest):
    own: CounterfactualRequest


class Change(ResponseModel):
    """What becomes of a cell."""

    feature: str
    before: Any = Field(alias="from")
    to: Any


class FoundRow(ResponseModel):
    """A row that reaches the goal, and its answer."""

    inputs: dict[str, Any]
    changes: list[Change]
    distance: float
    """Gower's distance: the mean over features of the change, 1 at most."""
    mean: float | None = None
    std: float | None = None
    exceedance: float | None = None
    prediction: str | None = None
    probability: float | None = None


class CounterfactualResponse(ResponseModel):
    """Rows that reach the goal, the nearest first."""

    model: ModelName
    target: str
    already_reached: bool
    """Whether the row reaches the goal as it is."""
    found: list[FoundRow]
    message: str | None
    """Why there is none."""


NONE = (
    "No row like the training rows that was tried reaches the goal. Leave more features free, or ask for less. The "
    "search is not exhaustive."
)


async def _answer(call: InFlight) -> Response:
    terms = Terms(call.query, call.model.schema, call.service.settings)
    parsed = await call.decode(_read, terms)
    model, own = call.model, parsed.own
    try:
        options = own.goal.options(model.schema, call.with_adapted_bands(parsed.options))
    except OptionError as error:
        said = str(error).removeprefix("goal: ")
        raise wrong("/goal", f"{said[:1].upper()}{said[1:]}.") from None
    call.admit(MOST_ROWS, options, own.timeout)
    row, distribution = parsed.inputs.columns, model.spec.encoder.distribution
    asking = counterfactuals(model.schema, distribution, row, own.goal, options, fixed=own.fixed, count=own.count)
    found = await ask(call, asking)
    call.rows = 1
    call.count_answer(options)
    return JSONBytes(_document(model, own.goal, parsed, found))


ENDPOINT = Endpoint(
    "counterfactual",
    tuple(f"{model}/counterfactual" for model in OF_MODELS),
    "Find the nearest rows that reach a goal, by",
    "Answers which cells of a row would have to change, and to what, for its answer to reach a goal.",
    _answer,
    CounterfactualRequest,
    (CounterfactualResponse,),
)


def _read(body: bytes, terms: Terms) -> _ParsedRequest:
    """Return the row and the options of a document; see `Codec.decode`."""
    schema, settings = terms.schema, terms.settings
    own = validate_document(CounterfactualRequest, document_of(body, terms))
    problems, names = Problems(), {feature.name for feature in schema.features}
    for place, name in enumerate(own.fixed):
        if name not in names:
            problems.add(place, pointer("fixed", place), explain_unknown(name, schema, problems))
    problems.raise_any()
    if not isinstance(own.inputs, dict):
        raise wrong("/inputs", "Expected one row: an object with a value for each feature.")
    options = predict_options(own, settings, schema.target)
    # There is one row, and so no number of it.
    row = parse_inputs([own.inputs], schema, 1, lambda place: place.replace("/inputs/0", "/inputs", 1))
    return _ParsedRequest(row, options, RecordOptions(), own=own)


def _document(model: "ModelLike", goal: Goal, parsed: ParsedRequest, found: "Counterfactual") -> dict[str, Any]:
    """Return the answer as JSON data."""
    given, *found_rows = map(
        orjson.loads, [*cells_of(model.schema, parsed.inputs.columns), *cells_of(model.schema, found.columns)]
    )
    rows = []
    for place, (row, distance) in enumerate(zip(found_rows, found.distances.tolist(), strict=True)):
        changes = [{"feature": name, "from": given[name], "to": row[name]} for name in row if row[name] != given[name]]
        rows.append(
            {"inputs": row, "changes": changes, "distance": distance, **_answer_of(found.prediction, place, goal)}
        )
    return {
        **names_of(model),
        "already_reached": found.reached,
        "found": rows,
        "message": None if rows else NONE,
    }


def _answer_of(prediction: Any, place: int, goal: Goal) -> dict[str, Any]:
    """Return the answer for a row, as far as a goal can ask for it."""
    if prediction.classes is not None:
        of_class = prediction.probabilities[place, prediction.classes.index(goal.probability.of)]  # type: ignore[union-attr]
        return {"prediction": prediction.classes[prediction.prediction[place]], "probability": float(of_class)}
    answer = {"mean": float(prediction.mean[place])}
    answer |= {} if prediction.std is None else {"std": float(prediction.std[place])}
    return answer | ({} if goal.exceedance is None else {"exceedance": float(prediction.exceedance[place, 0])})
