"""Which class is taken for which: the confusion matrix, and recall and precision of each class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["balanced_accuracy", "confusion_matrix", "scores_by_class"]


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
