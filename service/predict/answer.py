"""The JSON document that answers `POST /predict`; `codecs.answer_models` documents it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.service.predict.class_names import ClassNames
from murho.service.predict.json_output import encode_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from murho.model.predictive.prediction import AnswerField, AnyPrediction, Detail, PredictOptions
    from murho.model.tables.schema import UnfamiliarValue
    from murho.service.predict.inputs import Inputs

__all__ = ["MAX_WARNINGS", "describe_outside", "encode_answer"]

MAX_WARNINGS = 100


def describe_outside(outside: Sequence[UnfamiliarValue], inputs: Inputs) -> list[dict[str, str]]:
    """Returns warnings with pointers in the form of the request.

    Args:
        outside: The first values unlike the training rows, at most `MAX_WARNINGS` + 1. If there is one above
            `MAX_WARNINGS`, the last warning says that there are more.
        inputs: The rows of the request.
    """
    warnings = [
        {"pointer": inputs.pointer(item.row, item.feature), "message": f"{item.feature}: {item.message}"}
        for item in outside[:MAX_WARNINGS]
    ]
    if len(outside) > MAX_WARNINGS:
        message = f"More values are unlike the training rows; the first {MAX_WARNINGS} are listed."
        warnings.append({"pointer": "/inputs", "message": message})
    return warnings


def encode_answer(
    model: tuple[str, str],
    target: str,
    options: PredictOptions,
    prediction: AnyPrediction,
    warnings: list[dict[str, str]],
) -> Iterator[bytes]:
    """Returns the answer as JSON in UTF-8, in pieces.

    Args:
        model: Name and version of the checkpoint.
        target: The target's name.
        options: The options of the request. Keys that were not requested are absent; keys that need draws are null
            if there are none.
        prediction: Finite arrays.
        warnings: Values unlike the training rows.
    """
    document: dict[str, Any] = {
        "model": {"name": model[0], "version": model[1]},
        "target": target,
        "samples": prediction.samples,
        "seed": prediction.seed,
    }
    if prediction.classes is not None:
        document["classes"] = list(prediction.classes)
    for field in prediction.answer_fields:
        if not field.asked or getattr(options, field.asked):  # as `is_in`, without a call
            value = getattr(prediction, field.name)
            document[field.name] = None if value is None else _value(field, value, options, prediction.classes)
    document["calibrated"] = prediction.calibrated
    document["warnings"] = warnings
    return encode_document(document)


def _value(field: AnswerField, value: Any, options: PredictOptions, classes: tuple[str, ...] | None) -> Any:
    """Returns what the document has under the name of a field whose value is known."""
    if field.parts:
        return {
            part.name: _value(part, getattr(value, part.name), options, classes)
            for part in field.parts
            if part.is_in(options)
        }
    # The encoder takes arrays in one layout of memory.
    values = np.ascontiguousarray(value) if field.numeric else ClassNames(value, field.unit, classes or ())
    return values if field.detail is None else {field.detail.name: _detail(field.detail, options), "values": values}


def _detail(detail: Detail, options: PredictOptions) -> Any:
    value = getattr(options, detail.option)
    if detail.whole and detail.listed:
        return [int(number) if number.is_integer() else number for number in value]
    return value
