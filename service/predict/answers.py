"""What is asked and what is answered; the seam of formats; answers as columns of tables, their facts, and as responses.

A `Codec` reads the bodies of one media type and writes answers in it: a new format is a file with a codec, and its
entry in `predict.routes.CODECS`.

`/openapi.json` shows the pydantic models at the end, which are made from the tables of fields of the predictions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, create_model

from murho.model.evaluation.why import CLASS_MEASURES, NUMBER_MEASURES
from murho.model.predictive.answer_columns import answer_columns as columns_of_prediction
from murho.model.predictive.prediction import (
    CLASS_FIELDS,
    EXTRAPOLATION,
    NUMBER_FIELDS,
    NUMBER_UNITS,
    AdaptedBands,
    AnswerField,
    AnyPrediction,
    Place,
    PredictOptions,
    level_hint,
)
from murho.service.predict.budgets import VARY, compress
from murho.service.predict.options import PredictRequest, RecordOptions, ResponseModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from murho.model.tables.schema import Schema, UnfamiliarValue
    from murho.service.engine.jobs import ModelLike
    from murho.service.predict.json_rows import Inputs
    from murho.service.settings import Settings

MAX_WARNINGS = 100


class Terms(NamedTuple):
    """How a body is read.

    Attributes:
        query: The query parameters.
        schema: The features and the target of the model.
        settings: The limits.
        kind: The options that there are.
    """

    query: Mapping[str, str]
    schema: Schema
    settings: Settings
    kind: type[PredictRequest] = PredictRequest


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """What a request asks for.

    Attributes:
        inputs: The rows.
        options: The options, with the defaults filled in.
        request: The options as they were sent.
    """

    inputs: Inputs
    options: PredictOptions
    request: RecordOptions


@dataclass(frozen=True, slots=True)
class Result:
    """An answer, ready to be encoded.

    Attributes:
        model: The model that answers.
        parsed: The request.
        prediction: Finite arrays.
        warnings: Values unlike the training rows: `pointer` and `message` each.
        values: About how many values it has (`predict.predictions.answer_values`).
        ids: Of the recorded rows; None for each if they could not be; None: that was not asked for.
        adapted: How outcomes have moved the bands; None: they are the checkpoint's.
        explained: What else explains the answer: `why` and `worth_asking`, if they were asked for, as JSON data.
    """

    model: ModelLike
    parsed: ParsedRequest
    prediction: AnyPrediction
    warnings: list[dict[str, str]]
    values: int
    ids: Sequence[str | None] | None = None
    adapted: AdaptedBands | None = None
    explained: Mapping[str, Any] | None = None

    @property
    def options(self) -> PredictOptions:
        """The options of the request."""
        return self.parsed.options


class ToRecord(NamedTuple):
    """An answer to record.

    Attributes:
        model: Who answered.
        prediction: The answer, with draws and noise; a number's with its grid.
        ids: One a row, all different; None: new ones.
        inputs: The cells of each row as JSON; None: they aren't recorded.
        decisions: JSON of each row, if these are decisions.
        state: The state of adaptation that made the bands.
        shared: What decisions share with others of their request: an id and JSON.
    """

    model: ModelLike
    prediction: AnyPrediction
    ids: Sequence[str] | None = None
    inputs: list[str] | None = None
    decisions: list[str] | None = None
    state: str | None = None
    shared: tuple[str, str] | None = None


class Encoded(NamedTuple):
    """An answer in a format: its body in pieces, and headers for what the body has no place for."""

    pieces: Iterable[bytes]
    media_type: str
    headers: Mapping[str, str] = MappingProxyType({})


class Codec(ABC):
    """Reads requests and writes answers of one media type.

    Attributes:
        media_type: Of the answers, and the first of those that are read.
        aliases: Other media types that are read, in lower case.
        unpacks: Whether some bytes of a body can stand for many more, so that a small one can take long.
        lists: Whether a cell of an answer can be a list, as draws are.
        explains: Whether an answer has a place for `why` and `worth_asking`.
        records: Whether an answer has a place for ids.
    """

    media_type: ClassVar[str]
    aliases: ClassVar[frozenset[str]] = frozenset()
    unpacks = False
    lists = True
    explains = False
    records = True

    def reads(self, media_type: str) -> bool:
        """Return whether a body of this media type, in lower case and without parameters, is for this codec."""
        return media_type == self.media_type or media_type in self.aliases

    @abstractmethod
    def decode(self, body: bytes, terms: Terms) -> ParsedRequest:
        """Return the rows and the options of a request.

        Args:
            body: The whole body, not compressed.
            terms: How it is read.

        Raises:
            BadInputError: A row or an option can't be used; every problem has its pointer.
            TooLargeError: The request is above a limit.
        """

    @abstractmethod
    def encode(self, result: Result) -> Encoded:
        """Return the answer."""


def warnings_of(outside: Sequence[UnfamiliarValue], parsed: ParsedRequest) -> list[dict[str, str]]:
    """Return warnings with pointers in the form of the request: values unlike the training rows, and odd levels.

    Args:
        outside: The first values unlike the training rows, at most `MAX_WARNINGS` + 1. If there is one above
            `MAX_WARNINGS`, the last warning says that there are more.
        parsed: The request: levels that may be meant otherwise come first.
    """
    warnings = []
    if (hint := level_hint(parsed.options.percentiles)) is not None:
        warnings.append({"pointer": "/percentiles", "message": hint})
    for item in outside[:MAX_WARNINGS]:
        where = parsed.inputs.pointer(item.row, item.feature)
        warnings.append({"pointer": where, "message": f"{item.feature}: {item.message}"})
    if len(outside) > MAX_WARNINGS:
        message = f"More values are unlike the training rows; the first {MAX_WARNINGS} are listed."
        warnings.append({"pointer": "/inputs", "message": message})
    return warnings


def names_of(model: ModelLike) -> dict[str, Any]:
    """Return which checkpoint answers, and what it predicts: every answer begins with it."""
    return {"model": {"name": model.name, "version": model.version}, "target": model.schema.target.name}


def head_of(result: Result) -> dict[str, Any]:
    """Return what every form of an answer to a prediction begins with."""
    prediction = result.prediction
    head = names_of(result.model) | {"samples": prediction.samples, "seed": prediction.seed}
    if prediction.classes is not None:
        head["classes"] = list(prediction.classes)
    return head


def calibration_of(adapted: AdaptedBands) -> dict[str, Any]:
    """Return what is to be said of bands that follow outcomes."""
    return {"adapted": True, "outcomes": adapted.outcomes, "state": adapted.state}


def answer_columns(result: Result) -> dict[str, NDArray[Any]]:
    """Return the columns by name: those of `murho predict`, then what else was asked for.

    For a number these are `mean, std, epistemic_std, aleatoric_std`, then `p5, p50, …`, `exceedance_T` for each
    threshold, the Monte Carlo errors as `mean_mc_error, std_mc_error, p5_mc_error, …`, all `[B]`, and `draws` `[B, S]`.
    With `samples=0` only the mean has numbers; the others are NaN.

    For a class these are `prediction`, `p_CLASS` for each class, `entropy, epistemic_entropy, prediction_set`, then
    `epistemic_std_CLASS, p5_CLASS, …, mc_error_CLASS` and `draws` `[B, S, C]`. Names of classes are objects: a text in
    each cell of `prediction`, and a list of texts, or None, in each of `prediction_set`.

    With ids `id` comes first: a text, or None, in each cell.
    """
    columns = columns_of_prediction(result.prediction, result.options, tuple(Place))
    return columns if result.ids is None else {"id": np.array(result.ids, dtype=object), **columns}


def answer_facts(result: Result) -> dict[str, Any]:
    """Return what belongs to the whole answer, by the keys of the JSON answer."""
    prediction = result.prediction
    details = [field.detail for field in prediction.answer_fields if field.detail is not None]
    return {
        **head_of(result),
        "calibrated": prediction.calibrated,
        **({} if result.adapted is None else {"calibration": calibration_of(result.adapted)}),
        **{detail.name: getattr(result.options, detail.option) for detail in details},
        "warnings": result.warnings,
    }


def fact_headers(result: Result) -> dict[str, str]:
    """Return the facts as headers of an answer whose body has no place for them."""
    prediction = result.prediction
    return {
        "murho-model": result.model.name,
        "murho-version": result.model.version,
        "murho-samples": str(prediction.samples),
        "murho-seed": str(prediction.seed),
        "murho-calibrated": str(prediction.calibrated).lower(),
        "murho-extrapolation": str(np.count_nonzero(prediction.extrapolation)),
        "murho-warnings": str(len(result.warnings)),
        **({} if result.adapted is None else {"murho-state": result.adapted.state}),
    }


class Body(NamedTuple):
    """The whole body of an answer, as it is sent, and its headers."""

    content: bytes
    media_type: str
    headers: Mapping[str, str]


def whole(encoded: Encoded, coding: str | None) -> Body:
    """Return the whole body of an answer.

    Args:
        encoded: The answer.
        coding: gzip or deflate, to be compressed unless it is small; None: as it is.
    """
    sink, headers = BytesIO(), {**encoded.headers, **VARY}
    sink.writelines(encoded.pieces)
    content = sink.getvalue()  # no copy
    if coding is not None and (small := compress(content, coding)) is not None:
        content, headers["content-encoding"] = small, coding
    return Body(content, encoded.media_type, headers)


class ModelName(ResponseModel):
    """Which checkpoint answered."""

    name: str
    version: str


class InputWarning(ResponseModel):
    """A value unlike the training rows."""

    pointer: str
    message: str


class Adapted(ResponseModel):
    """What outcomes have made of the bands."""

    adapted: bool
    outcomes: int
    """How many were learned from."""
    state: str
    """Which state of the bands this is, in the service's store."""


class WorthAsking(ResponseModel):
    """A missing cell, and how far the variance, or a class's entropy, is expected to fall once it is known."""

    feature: str
    fall: float


def _why(prefix: str) -> Any:
    """Return the model of the shares; prefix: begins its name."""
    names = CLASS_MEASURES if prefix else NUMBER_MEASURES
    lists: dict[str, Any] = dict.fromkeys(names, (list[float] | None, None))
    tables: dict[str, Any] = dict.fromkeys(names, (list[list[float]] | None, None))
    baseline = create_model(f"{prefix}Baseline", __doc__="What is answered if no cell is known.", **lists)
    errors = create_model(f"{prefix}ShareErrors", __doc__="Standard errors of sampled shares.", **tables)
    about = "What each known cell adds to the answer, [rows][features]; shares and baseline add up to it."
    entries = {"features": (list[str], ...), "baseline": (baseline, ...)} | tables
    sampled: Any = errors | None, Field(None, description="Above ten known cells the shares are sampled.")
    return create_model(f"{prefix}Why", __doc__=about, **entries, mc_error=sampled)


def _response(name: str, about: str, fields: tuple[AnswerField, ...], prefix: str = "", **head: Any) -> type[BaseModel]:
    """Return the model of an answer.

    Args:
        name: Its name.
        about: What it is.
        fields: Its fields.
        prefix: Begins the names of the models of nested objects.
        head: Further keys before the fields, in the form of pydantic's `create_model`.
    """
    calibrated = "Whether all of the distribution is calibrated on held-out rows, or all of it is raw."
    entries: dict[str, Any] = {
        "model": (ModelName, ...),
        "target": (str, ...),
        "samples": (int, ...),
        "seed": (int, ...),
        **head,
        **{field.name: _entry(field, prefix) for field in fields},
        "ids": (
            list[str | None] | None,
            Field(
                None, description="Of the recorded rows; null where one could not be. Only if a record is asked for."
            ),
        ),
        "why": (_why(prefix) | None, Field(None, description="Only if asked for.")),
        "worth_asking": (
            list[list[WorthAsking]] | None,
            Field(None, description="For each row its missing cells, the most helpful first. Only if asked for."),
        ),
        "calibrated": (bool, Field(description=calibrated)),
        EXTRAPOLATION.name: (list[bool], Field(description=EXTRAPOLATION.about)),
        "calibration": (Adapted | None, Field(None, description="Absent where bands are those of the checkpoint.")),
        "warnings": (list[InputWarning], ...),
    }
    return create_model(name, __doc__=about, **entries)


def _entry(field: AnswerField, prefix: str, *, part: bool = False) -> tuple[Any, Any]:
    """Return the type of a key and its place in the model, in the form of pydantic's `create_model`.

    Args:
        field: The field.
        prefix: Begins the names of the models of nested objects.
        part: Whether it is a part of an object, which is null as a whole or not at all.
    """
    values: Any = float if field.unit in NUMBER_UNITS else str
    for _ in field.axes:
        values = list[values]
    axes = "".join(f"[{axis}]" for axis in field.axes) if len(field.axes) > 1 else None
    about: str | None = axes
    if field.parts or field.detail is not None:
        entries: dict[str, Any] = {each.name: _entry(each, prefix, part=True) for each in field.parts}
        if field.detail is not None:
            entries[field.detail.name] = (list[float] if field.detail.listed else float, ...)
            entries["values"] = (values, Field(description=axes))
        title = "".join(word.capitalize() for word in field.name.split("_"))
        values, about = create_model(f"{prefix}{title}", __doc__=field.about, **entries), None
    elif not part:
        about = (
            " ".join(filter(None, (field.about, axes and f"{axes}.", "Only if asked for." if field.option else None)))
            or None
        )
    if field.option:
        return values | None, Field(None, description=about)
    return values if part or field.without_draws else values | None, Field(description=about)


PredictResponse = _response(
    "PredictResponse",
    "One entry a row, in order, in the target's own unit. With samples = 0 the spreads are null.",
    NUMBER_FIELDS,
)
ClassPredictResponse = _response(
    "ClassPredictResponse",
    "The answer of a classifier: one entry a row, in order. With samples = 0 there are prediction and probabilities "
    "alone; all else is null.",
    CLASS_FIELDS,
    prefix="Class",
    classes=(list[str], Field(description="The classes, sorted.")),
)
