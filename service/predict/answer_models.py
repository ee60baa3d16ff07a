"""The models that document the JSON answers in OpenAPI, made from the tables of fields of the predictions."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, create_model

from murho.model.predictive.prediction import CLASS_FIELDS, NUMBER_FIELDS, NUMBER_UNITS, AnswerField

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
    calibrated = "Whether all of the distribution is calibrated on held-out rows, or all of it is raw."
    entries: dict[str, Any] = {
        "model": (ModelName, ...),
        "target": (str, ...),
        "samples": (int, ...),
        "seed": (int, ...),
        **head,
        **{field.name: _entry(field, prefix) for field in fields},
        "calibrated": (bool, Field(description=calibrated)),
        "warnings": (list[InputWarning], ...),
    }
    return create_model(name, __doc__=about, **entries)


def _entry(field: AnswerField, prefix: str, *, part: bool = False) -> tuple[Any, Any]:
    """Returns the type of a key and its place in the model, in the form of pydantic's `create_model`.

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
            " ".join(filter(None, (field.about, axes and f"{axes}.", "Only if asked for." if field.asked else None)))
            or None
        )
    if field.asked:
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
