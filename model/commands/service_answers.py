"""An answer of a service, as its client returns it, as the prediction that a posterior of this process would give.

So the columns of a table come from one place, wherever the answer was computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.engines.class_prediction import ClassMonteCarloError, ClassPrediction
from murho.model.engines.monte_carlo_error import MonteCarloError
from murho.model.engines.prediction import Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho_client import Prediction as Answer

__all__ = ["class_prediction_of", "number_prediction_of"]


def number_prediction_of(answer: Answer) -> Prediction:
    """The prediction of a number behind an answer; what was not asked for is None."""
    errors = answer.mc_error
    return Prediction(
        samples=answer.samples,
        seed=answer.seed,
        calibrated=answer.calibrated,
        mean=answer.mean,
        std=answer.std,
        epistemic_std=answer.epistemic_std,
        aleatoric_std=answer.aleatoric_std,
        percentiles=answer.percentiles,
        exceedance=_exceedance(answer),
        draws=answer.draws,
        mc_error=None if errors is None else MonteCarloError(**{"percentiles": np.empty((len(answer), 0)), **errors}),
    )


def class_prediction_of(answer: Answer, classes: Sequence[str]) -> ClassPrediction:
    """The prediction of a class behind an answer; what was not asked for is None.

    Args:
        answer: The answer.
        classes: Names of the C classes, in the order of the probabilities.
    """
    # Typed as anything: an installed client may be older than classes.
    given: Any = answer
    number = {name: place for place, name in enumerate(classes)}
    members = None
    if given.prediction_set is not None:
        members = np.array([[name in names for name in classes] for names in map(set, given.prediction_set)])
    errors = given.mc_error
    return ClassPrediction(
        samples=given.samples,
        seed=given.seed,
        calibrated=given.calibrated,
        classes=tuple(classes),
        prediction=np.array([number[name] for name in given.prediction], dtype=np.int64),
        probabilities=np.asarray(given.probabilities),
        epistemic_std=given.epistemic_std,
        entropy=given.entropy,
        epistemic_entropy=given.epistemic_entropy,
        prediction_set=members,
        draws=given.draws,
        mc_error=None if errors is None else ClassMonteCarloError(errors["probabilities"]),
    )


def _exceedance(answer: Answer) -> Any:
    if not answer.thresholds or answer.samples == 0:
        return None
    return np.stack([answer.exceedance(threshold) for threshold in answer.thresholds], axis=1)
