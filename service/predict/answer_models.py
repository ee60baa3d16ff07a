"""The models that document the JSON answers in OpenAPI, made from the tables of fields of the predictions."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, create_model

from murho.model.predictive.prediction import CLASS_FIELDS, NUMBER_FIELDS, AnswerField, Detail, Unit

__all__ = ["ClassPredictResponse", "PredictResponse"]


class ModelName(BaseModel):
    """Which checkpoint answered."""

    name: str
    version: str


class InputWarning(BaseModel):
    """A value unlike the training rows."""

    pointer: str
    message: str


def _response(name: str, about: str, fields: tuple[AnswerField, ...], prefix: str = "", **head: Any) -> type[BaseModel]:
    """Returns the model of an answer.

    Args:
        name: Its name.
        about: What it is.
        fields: Its fields.
        prefix: Begins the names of the models of nested objects.
        head: Further keys before the fields, in the form of pydantic's `create_model`.
    """
    first = {"model": (ModelName, ...), "target": (str, ...), "samples": (int, ...), "seed": (int, ...)}
    last = {
        "calibrated": (
            bool,
            Field(description="Whether all of the distribution is calibrated on held-out rows, or all of it is raw."),
        ),
        "warnings": (list[InputWarning], ...),
    }
    body = {field.name: _entry(field, prefix) for field in fields}
    entries: dict[str, Any] = {**first, **head, **body, **last}
    return create_model(name, __doc__=about, **entries)


def _entry(field: AnswerField, prefix: str) -> tuple[Any, Any]:
    """Returns the type of a key and its place in the model, in the form of pydantic's `create_model`."""
    if field.parts:
        kind: Any = _nested(
            f"{prefix}{_title(field.name)}", field.about, {part.name: _part(part) for part in field.parts}
        )
    elif field.detail is not None:
        detail = {field.detail.name: (_detail_type(field.detail), ...)}
        values = (_array_type(field), Field(description=_axes(field)))
        kind = _nested(f"{prefix}{_title(field.name)}", field.about, {**detail, "values": values})
    else:
        kind = _array_type(field)
    about = None if field.parts or field.detail else _about(field)
    if field.without_draws:
        return kind, Field(description=about)
    if not field.asked:
        return kind | None, Field(description=about)
    return kind | None, Field(None, description=about)


def _part(field: AnswerField) -> tuple[Any, Any]:
    """Returns the type and the place of a part of an object, which is null as a whole or not at all."""
    kind = _array_type(field)
    return (
        (kind, Field(description=_axes(field)))
        if not field.asked
        else (kind | None, Field(None, description=_axes(field)))
    )


def _nested(name: str, about: str, entries: dict[str, Any]) -> type[BaseModel]:
    return create_model(name, __doc__=about, **entries)


def _title(name: str) -> str:
    return "MonteCarloErrors" if name == "mc_error" else "".join(word.capitalize() for word in name.split("_"))


def _detail_type(detail: Detail) -> Any:
    return list[float] if detail.listed else float


def _array_type(field: AnswerField) -> Any:
    """Returns the type of nested lists with the axes of a field."""
    kind: Any = str if field.unit in (Unit.CLASS, Unit.CLASS_SET) else float
    for _ in field.axes:
        kind = list[kind]
    return kind


def _axes(field: AnswerField) -> str | None:
    """Returns the axes of an array of more than one, such as `[rows][levels]`."""
    return "".join(f"[{axis}]" for axis in field.axes) if len(field.axes) > 1 else None


def _about(field: AnswerField) -> str | None:
    axes = _axes(field)
    asked = "" if not field.asked else " Only if asked for."
    return f"{field.about}{f' {axes}.' if axes else ''}{asked}" or None


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
