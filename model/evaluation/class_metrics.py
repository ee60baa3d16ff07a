"""Metrics of class probabilities on labelled rows: accuracy, log loss, Brier score, AUC, each with row weights.

Pure functions of probabilities ``[N, C]``, labels ``[N]`` (whole numbers from 0 to C - 1) and weights ``[N]`` (None:
all rows count alike). The prediction is the likeliest class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from murho.model.evaluation.metrics import RowWeights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "SET_COVERAGES",
    "SHARES_KEPT",
    "ReliabilityBins",
    "accuracy_of_kept",
    "balanced_accuracy",
    "calibration_error",
    "class_reliability",
    "class_scores",
    "classwise_calibration_error",
    "confusion_matrix",
    "roc_auc",
    "row_brier",
    "row_log_loss",
    "scores_by_class",
    "scores_by_kind",
    "set_scores",
]


BINS = 15
"""Bins of equal width from 0 to 1; a bin holds its upper end."""


class ReliabilityBins(NamedTuple):
    """Rows in bins of a stated probability; only bins with rows.

    Attributes:
        stated: Mean stated probability in each bin, ``[bins]``.
        observed: Share of the rows of each bin where it came true, ``[bins]``.
        share: Share of the rows in each bin, ``[bins]``.
        rows: Number of rows in each bin, whatever their weights, ``[bins]``.
    """

    stated: NDArray[np.float64]
    observed: NDArray[np.float64]
    share: NDArray[np.float64]
    rows: NDArray[np.int64]

    @property
    def error(self) -> float:
        """Expected calibration error: mean over rows of the distance of stated and observed in their bin."""
        return float(self.share @ np.abs(self.stated - self.observed))


def class_reliability(
    stated: NDArray[np.float64],
    happened: NDArray[np.bool_],
    weights: NDArray[np.float64] | None = None,
    bins: int = BINS,
) -> ReliabilityBins:
    """Stated probabilities ``[N]`` beside how often it ``happened``, ``[N]``, in bins of equal width."""
    shares = np.ones(len(stated)) if weights is None else np.asarray(weights, dtype=np.float64)
    edges = np.linspace(0.0, 1.0, bins + 1)
    places = np.clip(np.searchsorted(edges, stated, side="left") - 1, 0, bins - 1)
    total = np.bincount(places, shares, minlength=bins)
    kept = total > 0.0
    return ReliabilityBins(
        stated=np.bincount(places, shares * stated, minlength=bins)[kept] / total[kept],
        observed=np.bincount(places, shares * happened, minlength=bins)[kept] / total[kept],
        share=total[kept] / total.sum(),
        rows=np.bincount(places, minlength=bins)[kept],
    )


def calibration_error(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], weights: NDArray[np.float64] | None = None
) -> float:
    """Expected calibration error of the likeliest class's probability (ECE, Guo et al. 2017), in 15 bins.

    Args:
        probabilities: ``[N, C]``.
        labels: ``[N]``.
        weights: ``[N]``; None: all rows count alike.
    """
    return class_reliability(probabilities.max(axis=1), probabilities.argmax(axis=1) == labels, weights).error


def classwise_calibration_error(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], weights: NDArray[np.float64] | None = None
) -> float:
    """Mean over classes of the calibration error of each class's probability, in 15 bins (Kull et al. 2019).

    Args:
        probabilities: ``[N, C]``.
        labels: ``[N]``.
        weights: ``[N]``; None: all rows count alike.
    """
    errors = [
        class_reliability(probabilities[:, number], labels == number, weights).error
        for number in range(probabilities.shape[1])
    ]
    return float(np.mean(errors))


def confusion_matrix(
    predictions: NDArray[np.int64],
    labels: NDArray[np.int64],
    classes: int,
    weights: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Weight of the rows of each class (first axis) that were predicted as each class (second axis), ``[C, C]``.

    Args:
        predictions: Predicted class of each row, ``[N]``.
        labels: Class of each row, ``[N]``.
        classes: C.
        weights: ``[N]``; None: all are 1, and the entries are numbers of rows.
    """
    counts = np.bincount(labels * classes + predictions, weights, minlength=classes * classes)
    return counts.astype(np.float64).reshape(classes, classes)


def balanced_accuracy(confusion: NDArray[np.float64]) -> float:
    """Mean recall of the classes that have rows, from a confusion matrix ``[C, C]``."""
    rows = confusion.sum(axis=1)
    return float(np.mean(np.diag(confusion)[rows > 0.0] / rows[rows > 0.0]))


def scores_by_class(
    predictions: NDArray[np.int64],
    labels: NDArray[np.int64],
    names: Sequence[str],
    weights: NDArray[np.float64] | None = None,
) -> dict[str, dict[str, Any]]:
    """How well each class is found.

    Args:
        predictions: Predicted class of each row, ``[N]``.
        labels: Class of each row, ``[N]``.
        names: Of the C classes.
        weights: ``[N]``; None: all rows count alike.

    Returns:
        By class: ``n``, its number of rows; ``recall``, the share of its rows predicted as it (None without rows);
        ``precision``, the share of its own rows in those predicted as it (None if no row is).
    """
    counts = np.bincount(labels, minlength=len(names))
    confusion = confusion_matrix(predictions, labels, len(names), weights)
    found, own, predicted = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    return {
        name: {
            "n": int(counts[number]),
            "recall": _share(found[number], own[number]),
            "precision": _share(found[number], predicted[number]),
        }
        for number, name in enumerate(names)
    }


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0.0 else None


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
    predictions = probabilities.argmax(axis=1)
    columns = {
        "accuracy": (predictions == labels).astype(np.float64),
        "log_loss": row_log_loss(probabilities, labels),
        "brier": row_brier(probabilities, labels),
    }
    means = {name: float(rows.mean(values)) for name, values in columns.items()}
    errors = {name: float(rows.standard_error(values)) for name, values in columns.items()}
    return {
        "n": len(labels),
        "accuracy": means["accuracy"],
        "balanced_accuracy": balanced_accuracy(confusion_matrix(predictions, labels, probabilities.shape[1], weights)),
        "log_loss": means["log_loss"],
        "brier": means["brier"],
        "auc": roc_auc(probabilities, labels, weights),
        "ece": calibration_error(probabilities, labels, weights),
        "classwise_ece": classwise_calibration_error(probabilities, labels, weights),
        "standard_errors": {name: error if np.isfinite(error) else None for name, error in errors.items()},
    }


def scores_by_kind(
    raw: NDArray[np.float64], calibrated: NDArray[np.float64] | None, labels: NDArray[np.int64], rows: RowWeights
) -> dict[str, Any]:
    """The scores of answers, and ``raw`` and ``calibrated`` each with theirs.

    Args:
        raw: Raw probabilities, ``[N, C]``.
        calibrated: Calibrated ones, ``[N, C]``; None without calibration, where answers are raw.
        labels: ``[N]``.
        rows: Weights and units of the rows.

    Returns:
        `class_scores` of what is served; ``raw`` and ``calibrated`` (None without calibration) have the same without
        ``n`` and ``standard_errors``.
    """
    weights, units = rows.shares if rows.weighted else None, rows.units if rows.grouped else None
    found = [
        class_scores(values, labels, weights=weights, units=units) for values in (raw, calibrated) if values is not None
    ]
    kinds = [{name: of[name] for name in of if name not in ("n", "standard_errors")} for of in found]
    return found[-1] | {"raw": kinds[0], "calibrated": None if calibrated is None else kinds[1]}


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


SHARES_KEPT = (50, 80, 90, 95, 100)
"""Shares of the rows that are kept, per cent."""


def accuracy_of_kept(
    correct: NDArray[np.bool_],
    uncertainty: NDArray[np.float64],
    weights: NDArray[np.float64] | None = None,
    kept: Sequence[int] = SHARES_KEPT,
) -> dict[str, float]:
    """Accuracy of the rows of least uncertainty (Geifman & El-Yaniv 2017, "Selective classification").

    Among rows of equal uncertainty those that are kept are drawn by lot: the result is the expectation.

    Args:
        correct: Whether each row's prediction is right, ``[N]``.
        uncertainty: ``[N]``, such as the entropy of its probabilities.
        weights: ``[N]``; None: all rows count alike.
        kept: Shares of the weight to keep, per cent, above 0.

    Returns:
        By share: ``{"50": …, "80": …}``.
    """
    shares = np.ones(len(correct)) if weights is None else np.asarray(weights, dtype=np.float64)
    _, place = np.unique(uncertainty, return_inverse=True)
    place = place.reshape(-1)
    total, right = (np.bincount(place, part) / shares.sum() for part in (shares, shares * correct))
    known, reached = (np.concatenate([[0.0], np.cumsum(part)]) for part in (total, right))
    levels = np.array(kept) / 100.0
    values = np.interp(levels, known, reached) / levels
    return dict(zip([str(share) for share in kept], values.tolist(), strict=True))


SET_COVERAGES = (80, 90, 95)
"""Nominal coverage of the reported prediction sets, per cent."""


def set_scores(
    sets: Mapping[int, NDArray[np.bool_]], labels: NDArray[np.int64], weights: NDArray[np.float64] | None = None
) -> dict[str, dict[str, float]]:
    """Coverage and mean size of prediction sets.

    Args:
        sets: By nominal coverage, per cent: whether each class is in each row's set, ``[N, C]``.
        labels: ``[N]``.
        weights: ``[N]``; None: all rows count alike.

    Returns:
        ``coverage`` (shares) and ``size`` (numbers of classes), each by nominal coverage: ``{"80": …, "90": …}``.
    """
    rows = np.arange(len(labels))
    return {
        "coverage": {str(at): float(np.average(held[rows, labels], weights=weights)) for at, held in sets.items()},
        "size": {str(at): float(np.average(held.sum(axis=1), weights=weights)) for at, held in sets.items()},
    }
