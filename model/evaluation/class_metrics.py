"""Metrics of class probabilities on labelled rows: accuracy, log loss, Brier score, AUC, each with row weights.

Pure functions of probabilities ``[N, C]``, labels ``[N]`` (whole numbers from 0 to C - 1) and weights ``[N]`` (None:
all rows count alike). The prediction is the likeliest class. Calibration errors are in
`model.evaluation.class_reliability`, scores by class in `model.evaluation.class_confusion`, prediction sets in
`model.evaluation.class_sets`, rows set aside in `model.evaluation.selective_accuracy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.evaluation.class_confusion import balanced_accuracy, confusion_matrix
from murho.model.evaluation.class_reliability import calibration_error, classwise_calibration_error
from murho.model.evaluation.weighted_means import RowWeights

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["class_scores", "correct_rows", "roc_auc", "row_brier", "row_log_loss"]

LEAST_PROBABILITY = float(np.finfo(np.float64).eps)
"""Probabilities of the true class below it count as it, as in scikit-learn: no log loss is infinite."""


def class_scores(
    probabilities: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    weights: NDArray[np.float64] | None = None,
    units: NDArray[np.generic] | None = None,
) -> dict[str, Any]:
    """All metrics of the probabilities.

    Args:
        probabilities: ``[N, C]``.
        labels: ``[N]``.
        weights: ``[N]``.
        units: Id of each row's exchangeable unit, ``[N]``, such as its group, for the standard errors. None: each row
            is one.

    Returns:
        ``n, accuracy, balanced_accuracy, log_loss`` (nats), ``brier, auc`` (None where no class has rows both of it and
        of others), ``ece, classwise_ece``, and ``standard_errors`` of ``accuracy, log_loss, brier`` (None for a single
        unit).
    """
    rows = RowWeights.of(len(labels), weights, units)
    columns = {
        "accuracy": correct_rows(probabilities, labels).astype(np.float64),
        "log_loss": row_log_loss(probabilities, labels),
        "brier": row_brier(probabilities, labels),
    }
    means = {name: float(rows.mean(values)) for name, values in columns.items()}
    errors = {name: float(rows.standard_error(values)) for name, values in columns.items()}
    predictions = probabilities.argmax(axis=1)
    confusion = confusion_matrix(predictions, labels, probabilities.shape[1], weights)
    return {
        "n": len(labels),
        "accuracy": means["accuracy"],
        "balanced_accuracy": balanced_accuracy(confusion),
        "log_loss": means["log_loss"],
        "brier": means["brier"],
        "auc": roc_auc(probabilities, labels, weights),
        "ece": calibration_error(probabilities, labels, weights),
        "classwise_ece": classwise_calibration_error(probabilities, labels, weights),
        "standard_errors": {name: error if np.isfinite(error) else None for name, error in errors.items()},
    }


def correct_rows(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each row's likeliest class is its own, ``[N]``."""
    correct: NDArray[np.bool_] = probabilities.argmax(axis=1) == labels
    return correct


def row_log_loss(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Log loss of each row, ``-log p`` of its own class, ``[N]``, nats."""
    own = probabilities[np.arange(len(labels)), labels]
    losses: NDArray[np.float64] = -np.log(np.maximum(own, LEAST_PROBABILITY))
    return losses


def row_brier(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Brier score of each row, ``[N]``.

    It is ``sum over c of (p_c - [c is the row's class])^2`` (Brier 1950), from 0 to 2. With two classes it is half of
    that, the squared error of one probability, from 0 to 1: as scikit-learn has it.
    """
    errors = probabilities.copy()
    errors[np.arange(len(labels)), labels] -= 1.0
    scale = 0.5 if probabilities.shape[1] == 2 else 1.0
    squares: NDArray[np.float64] = scale * np.square(errors).sum(axis=1)
    return squares


def roc_auc(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], weights: NDArray[np.float64] | None = None
) -> float | None:
    """Area under the ROC curve: of two rows of different classes, how often the right one has the higher probability.

    With two classes it is that of the second one's probability. With more it is the mean over classes of each against
    all others, without regard to their size (``multi_class="ovr", average="macro"`` of scikit-learn), over the classes
    that have rows; None if there is none with rows both of it and of others.
    """
    shares = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=np.float64)
    numbers = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    areas = [_area(probabilities[:, number], labels == number, shares) for number in numbers]
    found = [area for area in areas if area is not None]
    return float(np.mean(found)) if found else None


def _area(scores: NDArray[np.float64], positive: NDArray[np.bool_], weights: NDArray[np.float64]) -> float | None:
    """Weighted share of the pairs of a positive and a negative row where the positive one scores higher; ties half."""
    _, place = np.unique(scores, return_inverse=True)
    place = place.reshape(-1)
    positives, negatives = (np.bincount(place, weights * chosen) for chosen in (positive, ~positive))
    pairs = positives.sum() * negatives.sum()
    if not pairs > 0.0:
        return None
    return float(positives @ (negatives.cumsum() - 0.5 * negatives) / pairs)
