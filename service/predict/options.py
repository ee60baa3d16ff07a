"""Documents that are strictly typed, and the options of a request for predictions, from one or from a query.

`/openapi.json` shows the pydantic model of this module.
"""

from __future__ import annotations

import difflib
import re
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, WithJsonSchema

from murho.model.errors import Problem
from murho.model.predictive.prediction import PredictOptions
from murho.service.errors import BadInputError
from murho.service.predict.json_rows import JSON_NAMES, MAX_LISTED, pointer, refuse_unknown, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from murho.model.files import JSON
    from murho.model.tables.schema import Target
    from murho.service.settings import Settings

EXPECTED = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "an object"),
    "list_type": "a list",
    "string_type": "a string",
    "string_too_short": "a text of {min_length} characters or more",
    "string_too_long": "a text of at most {max_length} characters",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "none_required": "null",
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of {ge} or more",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of {le} or less",
    "float_parsing": "a number",
    "too_long": "at most {max_length} entries",
    "literal_error": "{expected}",
}
"""What is expected, by the type of pydantic's error; other errors say it themselves."""
OTHERS = {"missing": "This is required", "too_short": "The list is empty"}


class RequestModel(BaseModel):
    """A document, or a part of one, without other keys than the known ones."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class ResponseModel(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class InferenceError(ResponseModel):
    """What is wrong."""

    error: str


Document = TypeVar("Document", bound=RequestModel)
Item = TypeVar("Item")
Many = Annotated[list[Item], Field(fail_fast=True)]
"""A list of any length: of its wrong entries one is told, as each takes a kilobyte."""


def validate_document(kind: type[Document], document: Mapping[str, Any]) -> Document:
    """Return a document by its types.

    Raises:
        BadInputError: It is something else.
    """
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False)
        problems = (_problem(kind, document, item) for item in islice(found, MAX_LISTED))
        raise BadInputError(problems, len(found)) from None


def _problem(kind: type[RequestModel], document: Mapping[str, Any], item: Any) -> Problem:
    place, value, message = list(item["loc"]), item["input"], item["msg"].removeprefix("Value error, ")
    if item["type"] in EXPECTED:
        limits = {name: f"{limit}".removesuffix(".0") for name, limit in item.get("ctx", {}).items()}
        message = f"Expected {EXPECTED[item['type']].format(**limits)}, not {describe(value)}"
    elif item["type"] == "extra_forbidden":
        message = f"There is no key {shorten(place[-1])!r} here"
        close = difflib.get_close_matches(shorten(place[-1]), kind.model_fields, n=1) if len(place) == 1 else []
        if close:
            return Problem(pointer(*place), f"{message}. Did you mean {close[0]!r}?")
        message += f"; there are {', '.join(kind.model_fields)}" if len(place) == 1 else ""
    elif item["type"] in OTHERS:
        message = OTHERS[item["type"]]
    if place[0] == "inputs" and len(place) > 2:  # a tensor goes by its name, as in all other messages
        name = document["inputs"][place[1]].get("name")
        place[1] = name if isinstance(name, str) else place[1]
    return Problem(pointer(*place), f"{message}.")


def describe(value: object) -> str:
    """Return what a value is, in words for a message."""
    if isinstance(value, str):
        return f"the string {shorten(value)!r}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return shorten(repr(value))
    return f"a list of {len(value)}" if isinstance(value, list) and value else JSON_NAMES.get(type(value), "this")


MAX_SEED = 2**63 - 1
MAX_LEVELS = 100
LONGEST_ID = 200

OF_NUMBERS = {
    "noise": "A class has no noise that could be left out; leave this option out. epistemic_std and epistemic_entropy "
    "tell what the draws disagree about.",
    "thresholds": "A class can't exceed a threshold; leave this option out. probabilities has the probability of each "
    "class.",
}
OF_CLASSES = {
    "coverage": "Prediction sets are for classes; leave this option out. For a band of 90 % ask for two percentiles: "
    '"percentiles": [5, 95].',
}
"""Options that are for one kind of target alone, and what to do instead."""

SHARED = {*PredictOptions.__dataclass_fields__, "include"}
"""Options of predictions, by their names in requests."""
LISTS = frozenset({"percentiles", "thresholds", "include"})
WORDS = frozenset({"by", "ids"})
"""Lists of texts alone."""
WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
TRUTH = {"true": True, "false": False}

Cell = float | str | bool | None
Column = Annotated[list[Cell], Field(min_length=1)]
_FORMS = (
    Annotated[list[dict[str, Cell]], Field(min_length=1, title="records")]
    | Annotated[list[list[Cell]], Field(min_length=1, title="matrix")]
    | Annotated[dict[str, Column], Field(title="columns")]
)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("Expected printable characters alone")
    return text


Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID), AfterValidator(_printable)]
Level = Annotated[float, Field(gt=0, lt=100)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Included = Literal["draws", "mc_error", "why", "worth_asking"]


class CommonOptions(RequestModel):
    """Options of every request for predictions. Null stands for an option that is not given."""

    samples: Annotated[int, Field(ge=0)] | None = None
    """Draws behind the answer; 0 for the deterministic mean of the mu network."""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = None
    """Seed of the draws; the checkpoint's own by default."""
    calibrated: bool | None = None
    """true (default): std and both its parts, percentiles and exceedance, or the probabilities of a classifier and
    all that describes them, are as calibrated on held-out rows; false: all of them are raw. The answer says which
    it is."""
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Seconds in which the answer is wanted, up to the service's limit; after them, 504. The header
    X-Request-Timeout says the same for every format."""


class RecordOptions(CommonOptions):
    """Options of an answer that can be recorded."""

    record: bool | None = None
    """true: the answer is kept in the service's store and has ids, so that outcomes can be told of it."""
    ids: Many[Id] | None = None
    """The caller's own ids, all different, one a row or context; they ask for a record, too."""


class PredictRequest(RecordOptions):
    """Rows and how to predict them. Only `inputs` is required; null stands for an option that is not given."""

    model_config = ConfigDict(frozen=True)

    inputs: Annotated[Any, WithJsonSchema(TypeAdapter(_FORMS).json_schema())]
    """At least one row: a list of objects, a list of lists with the features in schema order, or an object of
    lists. null is a missing cell, where the feature allows it."""
    percentiles: Annotated[list[Level], Field(max_length=MAX_LEVELS)] | None = None
    """Percentile levels, strictly between 0 and 100; [5, 50, 95] by default."""
    noise: bool | None = None
    """true (default) describes a new observation, false the function alone. Not for a classifier."""
    thresholds: Annotated[list[Finite], Field(max_length=MAX_LEVELS)] | None = None
    """For each, the answer has the probability that the target exceeds it. Not for a classifier."""
    include: Annotated[list[Included], Field(max_length=MAX_LEVELS)] | None = None
    """"draws" adds the function value of every draw, in the target's unit, or its probabilities of the classes;
    "mc_error" the standard errors of mean, std and percentiles, or of the probabilities, for the finite number of
    draws; "why" the share of each known cell in the mean and in both variances, or in the probability of the
    likeliest class and its entropies; "worth_asking" how far the doubt would fall if a missing cell were known."""
    coverage: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Coverage of a classifier's prediction sets, 0.9 by default. For a classifier alone."""


def query_options(
    query: Mapping[str, str], settings: Settings, target: Target, kind: type[PredictRequest] = PredictRequest
) -> tuple[PredictOptions, PredictRequest]:
    """Return the options of a request whose body is a table, complete and as they were sent.

    Lists are separated by commas: `?percentiles=5,50,95`. Truth values are `true` and `false`.

    Args:
        query: The query parameters.
        settings: See `predict_options`, as for the next.
        target: The target of the model.
        kind: The options that there are.

    Raises:
        BadInputError: An option is unknown, has a wrong value or is not for this kind of target.
    """
    given = {
        name: text.split(",") if name in WORDS else value_of_text(text, listed=name in LISTS)
        for name, text in query.items()
    }
    return options_of(given, settings, target, kind)


def options_of(
    given: Mapping[str, Any],
    settings: Settings,
    target: Target,
    kind: type[PredictRequest] = PredictRequest,
    move: Callable[[str], str] = str,
) -> tuple[PredictOptions, PredictRequest]:
    """Return options that come without rows, complete and as they were sent; raise what `query_options` does.

    Args:
        given: The options.
        settings: See `predict_options`, as for the next.
        target: The target of the model.
        kind: The options that there are.
        move: From the pointer to an option to that in the body.
    """
    try:
        refuse_unknown([name for name in given if name == "inputs"], "It is no option.")
        request = validate_document(kind, {"inputs": None, **given})
        return predict_options(request, settings, target), request
    except BadInputError as error:
        problems = (Problem(move(each.pointer), each.message) for each in error.problems)
        raise BadInputError(problems, error.total) from None


def value_of_text(text: str, *, listed: bool = False) -> Any:
    """Return the number or truth value that a text stands for; other texts as they are.

    Args:
        text: The text.
        listed: Whether it stands for a list of such values, with commas between them.
    """
    text = text.strip()
    if listed:
        return [value_of_text(part) for part in text.split(",")] if text else []
    if text in TRUTH:
        return TRUTH[text]
    if WHOLE.fullmatch(text):
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text


def predict_options(request: CommonOptions, settings: Settings, target: Target, **own: Any) -> PredictOptions:
    """Return the options of a request with the defaults filled in.

    Args:
        request: The request.
        settings: S if the request doesn't say, and the largest S.
        target: The target of the model: some options are for numbers alone, or for classes.
        own: Options in place of the request's.

    Raises:
        BadInputError: An option is not for this kind of target, `samples` is above the limit, or a level is too near to
            0 or 100 for float64.
    """
    given = request.model_dump(include=SHARED, exclude_none=True) | own
    kind, foreign = ("number", OF_CLASSES) if target.classes is None else ("class", OF_NUMBERS)
    title = f"{shorten(target.name)!r} is a {kind}."
    problems = [Problem(pointer(name), f"{title} {advice}") for name, advice in foreign.items() if name in given]
    if given.setdefault("samples", min(settings.samples, settings.max_samples)) > settings.max_samples:
        problems.append(Problem("/samples", f"This service draws at most {settings.max_samples} samples."))
    for index, level in enumerate(given.get("percentiles", ())):
        # The inverse of the mixture's CDF is infinite at probabilities that round to 0 or 1.
        if not 0.0 < level / 100.0 < 1.0:
            problems.append(Problem(pointer("percentiles", index), "The level is too near to 0 or 100."))
    if problems:
        raise BadInputError(problems)
    include = given.pop("include", ())
    lists = {name: tuple(value) for name, value in given.items() if name in LISTS}
    included: JSON = {name: name in include for name in get_args(Included)}
    return PredictOptions(**given | lists | included)
