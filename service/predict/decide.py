"""`POST /decide` and its longer paths: for each context one of several actions, chosen by draws of the weights.

The rows are all actions of all contexts. A matrix product may round a row differently among others, so the rows of a
request share no pass with those of another one, and passes do not depend on measured speed (`Job.rows_of_pass`): the
same request, with the draws that decided, has the same answer to the bit.
"""

from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import orjson
from fastapi import Response
from pydantic import ConfigDict, Field

from murho.model.errors import OptionError, Problem
from murho.model.evaluation.recorded import with_grid
from murho.model.files import JSON
from murho.service.context import JSONBytes
from murho.service.errors import BadInputError, MediaTypeError, TooLargeError, wrong
from murho.service.predict.answers import MAX_WARNINGS, InputWarning, ModelName, ParsedRequest, Terms, names_of
from murho.service.predict.in_flight import InFlight
from murho.service.predict.json_bodies import JSONCodec, document_of
from murho.service.predict.json_rows import (
    MAX_LISTED,
    Form,
    Inputs,
    cells_of,
    parse_inputs,
    pointer,
)
from murho.service.predict.options import (
    Many,
    RecordOptions,
    RequestModel,
    ResponseModel,
    predict_options,
    validate_document,
)
from murho.service.predict.routes import OF_MODELS, Endpoint, reader_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.calibration.class_calibration import Calibration
    from murho.model.predictive.decisions import Actions, DecideOptions, Decisions
    from murho.model.tables.schema import Schema

BYTES_OF_DRAW, VALUE_BYTES = 24, 128
"""Of a function value or probability under a draw, with its copies; and of an action of a context, in the answer."""
LINEAR = (
    "This version is linear, without a hidden layer, so which action is the best hardly depends on the context. Train "
    "with --hidden 50 if it should."
)
VALUES_OF_PASS = 2**18
"""Rows times draws of a pass: about 1,000 rows of 256 draws."""


class Abstain(RequestModel):
    """When to answer "unsure" in place of an action."""

    risk: float = Field(gt=0, lt=1)
    """Largest share of wrong decisions among those that are taken, as far as held-out rows show it."""


EXAMPLE: JSON = {
    "contexts": [{"Weight_in_lbs": 3504, "Year": "1970-01-01"}],
    "actions": [
        {"id": "four", "inputs": {"Cylinders": 4, "Horsepower": 90.0}, "cost": 1.5},
        {"id": "eight", "inputs": {"Cylinders": 8, "Horsepower": 150.0}},
    ],
    "policy": "thompson",
}


class DecideRequest(RecordOptions):
    """Contexts, actions, and how to choose. Null stands for an option that is not given."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})

    contexts: Any
    """At least one row, in the forms of a prediction's inputs, with all features that no action sets."""
    actions: Any = None
    """A list of {"id": …, "inputs": {…}, "cost": …, "utility": {…}}. inputs are the features that the action sets,
    the same ones for all; cost is in the target's unit. Of a classifier, utility has a number for each class, and
    inputs may be left out; without actions its classes are the actions."""
    policy: str | None = None
    """thompson (default), greedy, ucb or threshold."""
    goal: str | None = None
    """max (default) or min: of the target."""
    width: float | None = None
    """Of ucb: epistemic standard deviations that are added, 1 by default."""
    threshold: float | None = None
    """Of threshold: what a new observation is to be beyond."""
    at_least: float | None = None
    """Of threshold: the probability of that, 0.9 by default."""
    abstain: Abstain | None = None
    """Answers "unsure" where held-out rows don't show that the error stays below a limit. For classifiers."""
    draw: Many[int] | None = None
    """Number of the draw that decides for each context; at random by default. For thompson."""
    samples: Annotated[int, Field(ge=1)] | None = None
    """Draws behind the answer."""


class Evidence(ResponseModel):
    """The held-out rows that say when to answer "unsure"."""

    method: str
    """split-conformal: the risk is below its limit with probability 0.95. cross-conformal, forward-conformal,
    pooled-conformal: that is measured, and not guaranteed, because these rows also chose the fit, or other networks
    judged them than answer."""
    rows: int


class DecideResponse(ResponseModel):
    """One entry a context, in order; `[contexts][actions]` where there is one for each action."""

    model: ModelName
    target: str
    policy: str
    goal: str
    samples: int
    seed: int
    action: list[str]
    """The action of each context, or "unsure"."""
    propensity: list[float]
    """Probability of this choice over the draws."""
    draw: list[int] | None = None
    """Number of the draw that decided. Of thompson alone."""
    actions: list[str]
    mean: list[list[float]]
    std: list[list[float]]
    epistemic_std: list[list[float]]
    probability_best: list[list[float]]
    """Share of the draws under which the action is the best."""
    calibrated: bool
    evidence: Evidence | None = None
    """Of abstain alone; null: there are no held-out rows, and all decisions are "unsure"."""
    ids: list[str | None] | None = None
    """Of recorded decisions; null where nothing was chosen."""
    warnings: list[InputWarning]


async def _answer(call: InFlight) -> Response:
    service, model = call.service, call.model
    if not isinstance(reader_of(call.headers.get("content-type", "")), JSONCodec):
        raise MediaTypeError("Decisions are asked for in JSON alone. Send application/json.")
    terms = Terms(call.query, model.schema, service.settings)
    parsed = await call.decode(_read, terms)
    record = call.records(parsed.request, parsed.options, parsed.inputs.count)
    if record and service.settings.record_inputs:
        longest = max(len(orjson.dumps(each)) for each in parsed.actions.inputs or ({},))
        kept, most = parsed.inputs.count * longest, service.settings.max_body_bytes
        if kept > most:
            raise TooLargeError(
                f"The inputs of {parsed.inputs.count} decisions, with actions of up to {longest} bytes, take {kept} "
                f"bytes in the store; this service records at most {most} of one request. Send fewer contexts."
            )
    decisions, warnings = await _decide(call, parsed, record=record)
    recorded, more = await _record(call, parsed, decisions) if record else ({}, [])
    document = {
        **names_of(model),
        "policy": parsed.how.policy,
        "goal": parsed.how.goal,
        **decisions.document(),
        **({} if parsed.how.risk is None else {"evidence": _evidence(model.spec.calibration)}),
        **recorded,
        "warnings": [*warnings, *more],
    }
    return await call.in_thread(partial(JSONBytes, document))


def _evidence(calibration: "Calibration | None") -> JSON | None:
    """Return what `Evidence` describes."""
    from murho.model.calibration.class_calibration import ClassCalibration

    if not isinstance(calibration, ClassCalibration) or calibration.held_out is None:
        return None
    return {"method": calibration.sets.method, "rows": len(calibration.held_out.labels)}


ENDPOINT = Endpoint(
    "decide",
    tuple(f"{model}/decide" for model in OF_MODELS),
    "Decide with",
    "Answers each context with an action, its propensity, and what every action is expected to give.",
    _answer,
    DecideRequest,
    (DecideResponse,),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ParsedRequest(ParsedRequest):
    """What a request asks for; `inputs` are the contexts, without what the actions set.

    Attributes:
        how: How to choose.
        actions: The actions.
        set_by_actions: Canonical columns of the features that actions set, `[A]` each.
        draws: The draw that decides for each context, `[N]`.
        document: The document but for contexts and draws.
    """

    how: "DecideOptions"
    actions: "Actions"
    set_by_actions: "dict[str, NDArray[Any]]"
    draws: "NDArray[np.int64]"
    document: JSON


def _read(body: bytes, terms: Terms) -> _ParsedRequest:
    """Return what a document asks for.

    Raises:
        BadInputError, InputError: Something can't be used; every problem has its pointer.
        TooLargeError: There are too many contexts and actions.
    """
    from murho.model.predictive.decisions import Actions, DecideOptions, draw_numbers

    document, schema, settings = document_of(body, terms), terms.schema, terms.settings
    parsed = validate_document(DecideRequest, document)
    samples = parsed.samples or min(max(1, settings.samples), settings.max_samples)
    of = predict_options(parsed, settings, schema.target, samples=samples, percentiles=[])
    actions = Actions.read(parsed.actions, schema.target)
    said = {name: getattr(parsed, name) for name in ("policy", "goal", "width", "threshold", "at_least")}
    given = {name: value for name, value in said.items() if value is not None}
    how = DecideOptions(**given, risk=None if parsed.abstain is None else parsed.abstain.risk, of=of)
    try:
        how.check(schema.target, actions)
    except OptionError as error:
        option, _, message = str(error).partition(": ")
        raise wrong(f"/{option}", f"{message[:1].upper()}{message[1:]}.") from None
    contexts, columns = _cells(parsed.contexts, actions, schema, settings.max_rows)
    if contexts.count * len(actions) > settings.max_rows:
        raise TooLargeError(
            f"The request has {contexts.count} contexts with {len(actions)} actions each; this service takes at most "
            f"{settings.max_rows} of both together. Send parts."
        )
    actions.contexts_at_a_time(samples)
    if parsed.draw is None:
        draws = draw_numbers(contexts.count, samples)
    elif how.policy != "thompson" or len(parsed.draw) != contexts.count:
        raise wrong("/draw", f"Expected one for each of {contexts.count} contexts, of thompson.")
    elif wrong_draws := [place for place, draw in enumerate(parsed.draw) if not 0 <= draw < samples]:
        places = wrong_draws[:MAX_LISTED]
        raise BadInputError(Problem(pointer("draw", place), f"Expected 0 to {samples - 1}.") for place in places)
    else:
        draws = np.array(parsed.draw, dtype=np.int64)
    rest = {name: value for name, value in document.items() if name not in ("contexts", "draw", "record", "ids")}
    return _ParsedRequest(
        contexts,
        of,
        parsed,
        how=how,
        actions=actions,
        set_by_actions=columns,
        draws=draws,
        document=rest,
    )


def _cells(
    contexts: object, actions: "Actions", schema: "Schema", max_rows: int
) -> "tuple[Inputs, dict[str, NDArray[Any]]]":
    """Return the contexts, and the canonical columns of what the actions set."""
    names = set(actions.features)
    of_actions = tuple(feature for feature in schema.features if feature.name in names)
    others = tuple(feature for feature in schema.features if feature.name not in names)
    columns: dict[str, NDArray[Any]] = {}
    if names:
        some = replace(schema, features=of_actions)
        columns = dict(
            parse_inputs(list(actions.inputs), some, max_rows, partial(_move_pointer, "actions", "inputs")).columns
        )
    for place, cells in enumerate(contexts if isinstance(contexts, list) else [contexts]):
        both = names & cells.keys() if isinstance(cells, dict) else set()
        if both:
            where = ("contexts", place) if isinstance(contexts, list) else ("contexts",)
            message = "The actions set this feature; leave it out."
            raise BadInputError(Problem(pointer(*where, name), message) for name in sorted(both)[:MAX_LISTED])
    return parse_inputs(contexts, replace(schema, features=others), max_rows, _of_context), columns


def _move_pointer(key: str, within: str, where: str) -> str:
    """Return a pointer below `/inputs` as one below another key.

    Args:
        key: The key.
        within: What stands between a row's number and its feature; empty for nothing.
        where: The pointer.
    """
    _, _, *parts = where.split("/")
    return "/".join(("", key, *parts[:1], *([within] if within and parts else []), *parts[1:]))


_of_context = partial(_move_pointer, "contexts", "")


async def _decide(call: InFlight, parsed: _ParsedRequest, *, record: bool) -> "tuple[Decisions, list[dict[str, str]]]":
    """Return the decisions and the warnings: contexts are answered some at a time, and decided in a thread.

    Raises:
        MurhoError: See `InFlight.compute`.
    """
    from murho.model.predictive.decisions import cross, decide, join_decisions

    actions, inputs, options, model = parsed.actions, parsed.inputs, parsed.how.predict_options, call.model
    call.admit(inputs.count * (actions.rows + record), options, parsed.request.timeout)
    found: list[Decisions] = []
    warnings = {"/actions": LINEAR} if actions.features and not model.spec.architecture.hidden else {}
    # A recorded decision can be repeated by itself, so it is computed by itself.
    step = 1 if record else actions.contexts_at_a_time(options.samples)
    drawn = min(step, inputs.count) * actions.values(options.samples)
    await call.reserve(BYTES_OF_DRAW * drawn + VALUE_BYTES * inputs.count * len(actions))
    for start in range(0, inputs.count, step):
        part = slice(start, min(inputs.count, start + step))
        contexts = {name: column[part] for name, column in inputs.columns.items()}
        numbers = part.stop - part.start, actions.rows
        columns = await call.in_thread(partial(cross, contexts, parsed.set_by_actions, model.schema, numbers))
        first, rows = call.rows, _Rows(Form.RECORDS, columns, numbers[0] * numbers[1], parsed=parsed)
        reply = await call.compute(rows, options, rows_of_pass=max(1, VALUES_OF_PASS // options.samples))
        for item in reply.outside:
            warnings.setdefault(rows.pointer(first + item.row, item.feature), f"{item.feature}: {item.message}")
        work = partial(decide, reply.prediction, actions, parsed.how, parsed.draws[part], model.spec.calibration)
        found.append(await call.in_thread(work))
    call.count_answer(options)
    listed = [{"pointer": place, "message": message} for place, message in warnings.items()]
    return join_decisions(found), listed[:MAX_WARNINGS]


async def _record(call: InFlight, parsed: _ParsedRequest, decisions: "Decisions") -> tuple[JSON, list[dict[str, str]]]:
    """Record the chosen actions as predictions; return their ids, and warnings.

    Raises:
        MurhoError: See `InFlight.compute`.
    """
    model, actions, own = call.model, parsed.actions, parsed.request.ids
    made = np.arange(len(decisions.choice)) if actions.rows == 1 else np.flatnonzero(decisions.choice >= 0)
    ids: list[str | None] = [None] * len(decisions.choice)
    if not len(made):
        return {"ids": ids}, []
    contexts = {name: column[made] for name, column in parsed.inputs.columns.items()}
    chosen = {name: column[decisions.choice[made]] for name, column in parsed.set_by_actions.items()}
    columns = {each.name: {**contexts, **chosen}[each.name] for each in model.schema.features}
    rows = Inputs(Form.RECORDS, columns, len(made))
    options = with_grid(parsed.options, model.schema.target)
    reply = await call.compute(rows, options, again=True)
    schema = replace(model.schema, features=tuple(each for each in model.schema.features if each.name in contexts))
    cells, shared = cells_of(schema, contexts) if call.service.settings.record_inputs else None, None
    if cells is not None:
        document = orjson.dumps(parsed.document, option=orjson.OPT_SORT_KEYS)
        shared = blake2b(document, digest_size=16).hexdigest(), document.decode()
    told = []
    for place, number in enumerate(made.tolist()):
        said: JSON = {"action": decisions.chosen[number], "propensity": float(decisions.propensity[number])}
        how: JSON = {"seed": decisions.seed, "samples": decisions.samples}
        how |= {} if decisions.draw is None else {"draw": [int(decisions.draw[number])]}
        if cells is not None and shared is not None:
            said["request"] = {"contexts": [orjson.loads(cells[place])]} | how
            said["shared"], _ = shared
        told.append(orjson.dumps({"policy": parsed.how.policy, **how, **said}).decode())
    request = parsed.request.model_copy(update={"ids": None if own is None else [own[number] for number in made]})
    chosen_rows = ParsedRequest(rows, parsed.options, request)
    kept, warnings = await call.record(chosen_rows, reply.prediction, decisions=told, shared=shared)
    for number, key in zip(made.tolist(), kept, strict=True):
        ids[number] = key
    return {"ids": ids}, warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows(Inputs):
    """All actions of some contexts as rows.

    Attributes:
        parsed: The request.
    """

    parsed: _ParsedRequest

    def pointer(self, row: int, feature: str) -> str:
        """Return the pointer to a feature of a row, in its context or in its action."""
        context, action = divmod(row, self.parsed.actions.rows)
        if feature in self.parsed.set_by_actions:
            return pointer("actions", action, "inputs", feature)
        return self.parsed.inputs.pointer(context, feature)
