"""An answer as the columns of a table, and what belongs to the whole answer as facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from murho.model.engines.prediction import Prediction
    from murho.service.codecs.codec import Answered

__all__ = ["answer_columns", "answer_facts", "fact_headers"]

SPREADS = ("std", "epistemic_std", "aleatoric_std")


def answer_columns(answered: Answered) -> dict[str, NDArray[Any]]:
    """Returns the columns by name, in the order and with the names of `murho predict`.

    `mean, std, epistemic_std, aleatoric_std`, then `p5, p50, …`, `exceedance_T` for each threshold, the Monte Carlo
    errors as `mean_mc_error, std_mc_error, p5_mc_error, …`, all `[B]`, and `draws` `[B, S]`. With `samples=0` only the
    mean has numbers; the others are NaN.
    """
    options, prediction = answered.options, answered.prediction
    nothing = np.full(len(prediction.mean), np.nan)
    columns: dict[str, NDArray[Any]] = {"mean": prediction.mean}
    for name in SPREADS:
        values = getattr(prediction, name)
        columns[name] = nothing if values is None else values
    levels = [f"p{_label(level)}" for level in options.percentiles]
    columns |= _split(levels, prediction.percentiles, nothing)
    columns |= _split([f"exceedance_{_label(value)}" for value in options.thresholds], prediction.exceedance, nothing)
    if options.mc_error:
        columns |= _errors(prediction, levels, nothing)
    if options.draws:
        columns["draws"] = np.empty((len(nothing), 0)) if prediction.draws is None else prediction.draws
    return columns


def _label(value: float) -> str:
    """Returns the shortest text of a number, so that different numbers have different names."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _split(names: list[str], values: NDArray[Any] | None, nothing: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
    return {name: nothing if values is None else values[:, index] for index, name in enumerate(names)}


def _errors(prediction: Prediction, levels: list[str], nothing: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
    errors = prediction.mc_error
    of_moments = {"mean": nothing, "std": nothing} if errors is None else {"mean": errors.mean, "std": errors.std}
    columns = of_moments | dict(_split(levels, None if errors is None else errors.percentiles, nothing))
    return {f"{name}_mc_error": values for name, values in columns.items()}


def answer_facts(answered: Answered) -> dict[str, Any]:
    """Returns what belongs to the whole answer, by the keys of the JSON answer."""
    prediction, options = answered.prediction, answered.options
    return {
        "model": {"name": answered.model[0], "version": answered.model[1]},
        "target": answered.target,
        "samples": prediction.samples,
        "seed": prediction.seed,
        "calibrated": prediction.calibrated,
        "levels": list(options.percentiles),
        "thresholds": list(options.thresholds),
        "warnings": answered.warnings,
    }


def fact_headers(answered: Answered) -> dict[str, str]:
    """Returns the facts as headers of an answer whose body has no place for them."""
    prediction = answered.prediction
    return {
        "murho-model": answered.model[0],
        "murho-version": answered.model[1],
        "murho-samples": str(prediction.samples),
        "murho-seed": str(prediction.seed),
        "murho-calibrated": str(prediction.calibrated).lower(),
        "murho-warnings": str(len(answered.warnings)),
    }
