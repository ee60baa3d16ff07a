"""Scores of class probabilities, and what they say about doubt: error, log loss, AUC, calibration error, entropies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["class_scores", "doubt", "ranked_auc"]

BINS = 15
"""Bins of equal width of the calibration error, as in Guo et al. 2017."""


def class_scores(probabilities: NDArray[np.float64], digits: NDArray[np.int64]) -> dict[str, float]:
    """Error rate, its standard error, log loss in nats, macro AUC (one class against the rest) and calibration error.

    Args:
        probabilities: ``[N, C]``.
        digits: Observed classes, ``[N]``.
    """
    wrong = probabilities.argmax(axis=1) != digits
    error = float(wrong.mean())
    own = np.maximum(probabilities[np.arange(len(digits)), digits], 1e-12)
    aucs = [ranked_auc(probabilities[:, number], digits == number) for number in range(probabilities.shape[1])]
    return {
        "error": error,
        "standard_error": math.sqrt(error * (1.0 - error) / len(digits)),
        "log_loss": float(-np.log(own).mean()),
        "auc": float(np.nanmean(aucs)),
        "ece": _calibration_error(probabilities.max(axis=1), ~wrong),
    }


def ranked_auc(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Area under the ROC curve: the share of pairs in the right order, ties count half; NaN without both classes.

    Args:
        scores: ``[N]``.
        positive: ``[N]``.
    """
    count = int(positive.sum())
    if not 0 < count < len(scores):
        return math.nan
    _, places, ties = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2.0)[places]  # from 1, the mean rank of equal scores
    return float((ranks[positive].sum() - count * (count + 1) / 2.0) / (count * (len(scores) - count)))


def _calibration_error(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, right.astype(float), BINS) - np.bincount(bins, confidence, BINS)
    return float(np.abs(gaps).sum() / len(confidence))


def doubt(draws: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Entropy of the mean probabilities, and the mutual information of class and weights (Houlsby et al. 2011), nats.

    Args:
        draws: Log probabilities under each draw, ``[S, N, C]``.

    Returns:
        ``[N]`` each.
    """
    mixed = draws.logsumexp(dim=0) - math.log(len(draws))
    total, expected = _entropy(mixed), _entropy(draws).mean(dim=0)
    return total.double().numpy(), torch.clamp_min(total - expected, 0.0).double().numpy()


def _entropy(log_probabilities: Tensor) -> Tensor:
    return -(log_probabilities.exp() * log_probabilities).sum(dim=-1)
