"""The JSON document that answers `POST /predict`: its encoding, and the models that document it in OpenAPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, Field

from murho.service.codecs.json_output import encode_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.data.schema import UnfamiliarValue
    from murho.model.engines.prediction import Prediction, PredictOptions
    from murho.service.codecs.inputs import Inputs

__all__ = ["MAX_WARNINGS", "PredictResponse", "describe_outside", "encode_answer"]

MAX_WARNINGS = 100


class ModelName(BaseModel):
    """Which checkpoint answered."""

    name: str
    version: str


class Percentiles(BaseModel):
    """Percentiles of the predictive distribution, in the target's unit."""

    levels: list[float]
    values: list[list[float]] = Field(description="[rows][levels]")


class Exceedance(BaseModel):
    """Probabilities that the target exceeds thresholds."""

    thresholds: list[float]
    values: list[list[float]] = Field(description="[rows][thresholds]")


class MonteCarloErrors(BaseModel):
    """Standard errors for the finite number of draws, in the target's unit."""

    mean: list[float]
    std: list[float]
    percentiles: list[list[float]] | None = Field(None, description="[rows][levels], in the order of the levels.")


class InputWarning(BaseModel):
    """A value unlike the training rows."""

    pointer: str
    message: str


class PredictResponse(BaseModel):
    """One entry a row, in order, in the target's own unit. With samples = 0 the spreads are null."""

    model: ModelName
    target: str
    samples: int
    seed: int
    mean: list[float]
    std: list[float] | None = Field(
        description="Standard deviation of the distribution that the percentiles describe; its square is "
        "epistemic_std² + aleatoric_std²."
    )
    epistemic_std: list[float] | None = Field(
        description="Part of std: spread of the function values over draws. Calibration leaves the proportion of both "
        "parts as it is."
    )
    aleatoric_std: list[float] | None = Field(description="Part of std: spread of the observation noise.")
    percentiles: Percentiles | None = None
    exceedance: Exceedance | None = None
    draws: list[list[float]] | None = Field(None, description="[rows][samples], only if asked for.")
    mc_error: MonteCarloErrors | None = Field(None, description="Only if asked for.")
    calibrated: bool = Field(
        description="Whether std and its parts, percentiles and exceedance are calibrated on held-out rows, or raw."
    )
    warnings: list[InputWarning]


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
    prediction: Prediction,
    warnings: list[dict[str, str]],
) -> bytes:
    """Returns the answer as JSON in UTF-8.

    Args:
        model: Name and version of the checkpoint.
        target: The target's name.
        options: The options of the request. Keys that were not requested are absent; keys that need draws are null
            if there are none.
        prediction: Finite arrays in the target's unit.
        warnings: Values unlike the training rows.
    """
    document: dict[str, Any] = {
        "model": {"name": model[0], "version": model[1]},
        "target": target,
        "samples": prediction.samples,
        "seed": prediction.seed,
        "mean": _array(prediction.mean),
        "std": _array(prediction.std),
        "epistemic_std": _array(prediction.epistemic_std),
        "aleatoric_std": _array(prediction.aleatoric_std),
    }
    if prediction.percentiles is None:
        document["percentiles"] = None
    elif options.percentiles:
        levels = [int(level) if level.is_integer() else level for level in options.percentiles]
        document["percentiles"] = {"levels": levels, "values": _array(prediction.percentiles)}
    if options.thresholds:
        values = _array(prediction.exceedance)
        thresholds = list(options.thresholds)
        document["exceedance"] = None if values is None else {"thresholds": thresholds, "values": values}
    if options.draws:
        document["draws"] = _array(prediction.draws)
    if options.mc_error:
        document["mc_error"] = _errors(prediction, options)
    document["calibrated"] = prediction.calibrated
    document["warnings"] = warnings
    return encode_document(document)


def _errors(prediction: Prediction, options: PredictOptions) -> dict[str, Any] | None:
    errors = prediction.mc_error
    if errors is None:
        return None
    document = {"mean": _array(errors.mean), "std": _array(errors.std)}
    if options.percentiles:
        document["percentiles"] = _array(errors.percentiles)
    return document


def _array(values: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any] | None:
    """Returns the array in the memory layout that the encoder needs."""
    return None if values is None else np.ascontiguousarray(values)
