"""Accuracy when the least certain rows are set aside: what a decision gains that leaves these rows to people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["SHARES_KEPT", "accuracy_of_kept"]

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
