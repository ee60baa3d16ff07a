"""Whether class probabilities are frequencies: calibration errors in bins, and the data of a reliability diagram."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BINS", "ReliabilityBins", "calibration_error", "class_reliability", "classwise_calibration_error"]

BINS = 15
"""Bins of equal width from 0 to 1; a bin holds its upper end."""


class ReliabilityBins(NamedTuple):
    """Rows in bins of a stated probability; only bins with rows.

    Attributes:
        lower: Lower end of each bin, ``[bins]``.
        upper: Upper end of each bin, ``[bins]``.
        stated: Mean stated probability in each bin, ``[bins]``.
        observed: Share of the rows of each bin where it came true, ``[bins]``.
        share: Share of the rows in each bin, ``[bins]``.
        rows: Number of rows in each bin, whatever their weights, ``[bins]``.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
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
        lower=edges[:-1][kept],
        upper=edges[1:][kept],
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
    correct = probabilities.argmax(axis=1) == labels
    return class_reliability(probabilities.max(axis=1), correct, weights).error


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
