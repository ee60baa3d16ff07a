"""Scores of class probabilities for a report: accuracy, log loss, Brier score, AUC, calibration error, sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from murho.model.evaluation.weighted_means import RowWeights

__all__ = ["class_report", "set_report"]


def class_report(
    probabilities: NDArray[np.float64], targets: NDArray[np.float64], weights: RowWeights
) -> tuple[dict[str, Any], dict[str, float]]:
    """Scores of class probabilities, and the standard errors of some.

    Args:
        probabilities: ``[n, C]``.
        targets: Index of the class, ``[n]``.
        weights: Weights and units of the rows.

    Returns:
        ``accuracy, log_loss, brier, auc, ece``; the standard errors of the first three.
    """
    codes = targets.astype(np.int64)
    own = probabilities[np.arange(len(codes)), codes]
    observed = np.eye(probabilities.shape[1])[codes]
    values = {
        "accuracy": (probabilities.argmax(axis=1) == codes).astype(np.float64),
        "log_loss": -np.log(own),
        "brier": np.square(probabilities - observed).sum(axis=1),
    }
    report: dict[str, Any] = {name: float(weights.mean(value)) for name, value in values.items()}
    errors = {name: float(weights.standard_error(value)) for name, value in values.items()}
    return report | {"auc": None, "ece": 0.0}, errors


def set_report(
    sets: Mapping[float, NDArray[np.bool_]], targets: NDArray[np.float64], weights: RowWeights
) -> dict[str, dict[str, float]]:
    """Coverage and mean size of prediction sets, by their nominal coverage in per cent.

    Args:
        sets: Nominal coverage → whether a class is in the row's set, ``[n, C]``.
        targets: Index of the class, ``[n]``.
        weights: Weights and units of the rows.
    """
    codes = targets.astype(np.int64)
    report: dict[str, dict[str, float]] = {"coverage": {}, "size": {}}
    for coverage, found in sets.items():
        name = f"{100.0 * coverage:g}"
        report["coverage"][name] = float(weights.mean(found[np.arange(len(codes)), codes].astype(np.float64)))
        report["size"][name] = float(weights.mean(found.sum(axis=1).astype(np.float64)))
    return report
