"""An answer as the columns of a table, and what belongs to the whole answer as facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.predictive.answer_columns import answer_columns as columns_of_prediction
from murho.model.predictive.prediction import Place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.service.predict.codec import Answered

__all__ = ["answer_columns", "answer_facts", "fact_headers"]


def answer_columns(answered: Answered) -> dict[str, NDArray[Any]]:
    """Returns the columns by name: those of `murho predict`, then what else was asked for.

    For a number these are `mean, std, epistemic_std, aleatoric_std`, then `p5, p50, …`, `exceedance_T` for each
    threshold, the Monte Carlo errors as `mean_mc_error, std_mc_error, p5_mc_error, …`, all `[B]`, and `draws` `[B, S]`.
    With `samples=0` only the mean has numbers; the others are NaN.

    For a class these are `prediction`, `p_CLASS` for each class, `entropy, epistemic_entropy, prediction_set`, then
    `epistemic_std_CLASS, p5_CLASS, …, mc_error_CLASS` and `draws` `[B, S, C]`. Names of classes are objects: a text in
    each cell of `prediction`, and a list of texts, or None, in each of `prediction_set`.
    """
    return columns_of_prediction(answered.prediction, answered.options, tuple(Place))


def answer_facts(answered: Answered) -> dict[str, Any]:
    """Returns what belongs to the whole answer, by the keys of the JSON answer."""
    prediction, options = answered.prediction, answered.options
    details = [field.detail for field in prediction.answer_fields if field.detail is not None]
    return {
        "model": {"name": answered.model[0], "version": answered.model[1]},
        "target": answered.target,
        "samples": prediction.samples,
        "seed": prediction.seed,
        "calibrated": prediction.calibrated,
        **({} if prediction.classes is None else {"classes": list(prediction.classes)}),
        **{detail.name: getattr(options, detail.option) for detail in details},
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
