"""The JSON document of a request to `POST /predict`: its options, strictly typed. `codecs.inputs` reads its rows.

`/openapi.json` shows the pydantic models of this module.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from murho.model.errors import Problem
from murho.model.predictive.prediction import PredictOptions
from murho.service.errors import BadInputError
from murho.service.predict.cells import JSON_NAMES
from murho.service.predict.foreign_bodies import foreign_form
from murho.service.predict.json_hints import json_hint
from murho.service.predict.problems import MAX_LISTED, pointer, shorten
from murho.service.predict.target_options import require_options_for

if TYPE_CHECKING:
    from murho.model.tables.schema import Target

__all__ = [
    "EXAMPLE",
    "NO_OBJECT",
    "PredictRequest",
    "check_document",
    "parse_document",
    "predict_options",
    "validate_document",
]

NO_OBJECT = 'The body has to be a JSON object such as {"inputs": [{…}]}.'

MAX_SEED = 2**63 - 1
MAX_LEVELS = 100
DEFAULT = PredictOptions()

_TRUTH = "true or false"
EXPECTED: dict[str, tuple[str, str]] = {
    "samples": ("an integer, 0 or larger", ""),
    "seed": (f"an integer from 0 to {MAX_SEED} (2^63 - 1)", ""),
    "percentiles": (f"a list of at most {MAX_LEVELS} levels", "a number above 0 and below 100"),
    "thresholds": (f"a list of at most {MAX_LEVELS} numbers", "a finite number"),
    "include": ('a list such as ["draws", "mc_error"]', '"draws" or "mc_error"'),
    "noise": (_TRUTH, ""),
    "calibrated": (_TRUTH, ""),
    "coverage": ("a number above 0 and below 1", ""),
    "timeout": ("a number of seconds above 0", ""),
}
"""What an option is, and what each entry of it is if it is a list, for messages."""

EXAMPLE: dict[str, Any] = {
    "inputs": [
        {
            "Cylinders": 8,
            "Displacement": 307.0,
            "Horsepower": 130.0,
            "Weight_in_lbs": 3504,
            "Acceleration": 12.0,
            "Year": "1970-01-01",
            "Origin": "USA",
        }
    ],
    "samples": 256,
    "percentiles": [5, 50, 95],
    "thresholds": [20.0],
}

_CELL: dict[str, Any] = {"anyOf": [{"type": kind} for kind in ("number", "string", "boolean", "null")]}
_INPUTS: dict[str, Any] = {
    "anyOf": [
        {
            "title": "records",
            "type": "array",
            "minItems": 1,
            "items": {"type": "object", "additionalProperties": _CELL},
        },
        {"title": "matrix", "type": "array", "minItems": 1, "items": {"type": "array", "items": _CELL}},
        {
            "title": "columns",
            "type": "object",
            "additionalProperties": {"type": "array", "minItems": 1, "items": _CELL},
        },
    ]
}

Level = Annotated[float, Field(gt=0, lt=100)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class PredictRequest(BaseModel):
    """Rows and how to predict them. Only `inputs` is required; null stands for an option that is not given."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, json_schema_extra={"example": EXAMPLE})

    inputs: Any = Field(
        description="At least one row: a list of objects, a list of lists with the features in schema order, "
        "or an object of lists. null is a missing cell, where the feature allows it.",
        json_schema_extra=_INPUTS,
    )
    samples: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Draws behind the answer; 0 for the deterministic mean of the mu network."
    )
    percentiles: Annotated[list[Level], Field(max_length=MAX_LEVELS)] | None = Field(
        None, description="Percentile levels, strictly between 0 and 100; [5, 50, 95] by default."
    )
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = Field(
        None, description="Seed of the draws; the checkpoint's own by default."
    )
    noise: bool | None = Field(
        None, description="true (default) describes a new observation, false the function alone. Not for a classifier."
    )
    calibrated: bool | None = Field(
        None,
        description="true (default): std and both its parts, percentiles and exceedance, or the probabilities of a "
        "classifier and all that describes them, are as calibrated on held-out rows; false: all of them are raw. The "
        "answer says which it is.",
    )
    thresholds: Annotated[list[Finite], Field(max_length=MAX_LEVELS)] | None = Field(
        None, description="For each, the answer has the probability that the target exceeds it. Not for a classifier."
    )
    include: Annotated[list[Literal["draws", "mc_error"]], Field(max_length=MAX_LEVELS)] | None = Field(
        None,
        description='"draws" adds the function value of every draw, in the target\'s unit, or its probabilities of the '
        'classes; "mc_error" the standard errors of mean, std and percentiles, or of the probabilities, for the finite '
        "number of draws.",
    )
    coverage: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="Coverage of a classifier's prediction sets, 0.9 by default. For a classifier alone."
    )
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None,
        description="Seconds in which the answer is wanted, up to the service's limit; after them, 504. The header "
        "X-Request-Timeout says the same for every format.",
    )


def parse_document(body: bytes) -> PredictRequest:
    """Returns the request in a body, with `inputs` as parsed JSON.

    Raises:
        BadInputError: The body is not a strict JSON object, for example because of NaN, Infinity or a number that
            float64 can't hold. Or an option is unknown or has a wrong value.
    """
    if not body.strip():
        raise BadInputError([Problem("", 'The body is empty. Send a JSON object such as {"inputs": [{…}]}.')])
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadInputError(
            [Problem("", f"The body isn't valid JSON in UTF-8. {foreign_form(body) or _fault(error)}")]
        ) from None
    if not isinstance(document, dict):
        raise BadInputError([Problem("", NO_OBJECT)])
    return check_document(document)


def _fault(error: orjson.JSONDecodeError) -> str:
    hint = json_hint(error)
    return str(error) if hint is None else f"{hint} ({error})"


def check_document(document: dict[str, Any]) -> PredictRequest:
    """Returns the request in a parsed document.

    Raises:
        BadInputError: An option is unknown or has a wrong value.
    """
    options = list(PredictRequest.model_fields)
    if not document.keys() <= PredictRequest.model_fields.keys():
        unknown = [name for name in document if name not in PredictRequest.model_fields]
        message = f"There is no such option; there are {', '.join(options)}."
        raise BadInputError(
            (Problem(pointer(name), f"{shorten(name)!r}: {message}") for name in islice(unknown, MAX_LISTED)),
            len(unknown),
        )
    return validate_document(document)


def validate_document(document: dict[str, Any]) -> PredictRequest:
    """Returns the request in a parsed document of known keys.

    Raises:
        BadInputError: An option has a wrong value.
    """
    try:
        return PredictRequest.model_validate(document)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False)
        problems = (Problem(pointer(*item["loc"]), _message(item["loc"], item["input"])) for item in wrong)
        raise BadInputError(islice(problems, MAX_LISTED), len(wrong)) from None


def predict_options(request: PredictRequest, default_samples: int, max_samples: int, target: Target) -> PredictOptions:
    """Returns the options of a request with the defaults filled in.

    Args:
        request: The request.
        default_samples: S if the request doesn't say.
        max_samples: The largest S.
        target: The target of the model: some options are for numbers alone, or for classes.

    Raises:
        BadInputError: An option is not for this kind of target, `samples` is above the limit, or a level is too near to
            0 or 100 for float64.
    """
    require_options_for(target, request)
    samples = min(default_samples, max_samples) if request.samples is None else request.samples
    levels = DEFAULT.percentiles if request.percentiles is None else tuple(request.percentiles)
    if samples > max_samples or levels is not DEFAULT.percentiles:
        _check(samples, max_samples, levels)
    include = request.include or ()
    return _options(
        samples,
        levels,
        request.seed,
        DEFAULT.noise if request.noise is None else request.noise,
        tuple(request.thresholds or ()),
        "draws" in include,
        DEFAULT.calibrated if request.calibrated is None else request.calibrated,
        "mc_error" in include,
        DEFAULT.coverage if request.coverage is None else request.coverage,
    )


@lru_cache(1024)
def _options(*values: Any) -> PredictOptions:
    """Returns the options with these values; most requests have the same ones."""
    return PredictOptions(*values)


def _check(samples: int, max_samples: int, levels: tuple[float, ...]) -> None:
    problems = []
    if samples > max_samples:
        problems.append(Problem("/samples", f"This service draws at most {max_samples} samples."))
    for index, level in enumerate(levels):
        # The inverse of the mixture's CDF is infinite at probabilities that round to 0 or 1.
        if not 0.0 < level / 100.0 < 1.0:
            problems.append(Problem(pointer("percentiles", index), "The level is too near to 0 or 100."))
    if problems:
        raise BadInputError(problems)


def _message(place: tuple[int | str, ...], value: object) -> str:
    """Returns what is expected of an option, or of an entry of it, in place of a value."""
    if place == ("inputs",):
        return "This is required."
    whole, entry = EXPECTED[str(place[0])]
    return f"Expected {entry if len(place) > 1 else whole}, not {_shown(value)}."


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f"the string {shorten(value)!r}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return shorten(repr(value))
    if isinstance(value, list) and value:
        return f"a list of {len(value)}"
    return JSON_NAMES.get(type(value), "this")
