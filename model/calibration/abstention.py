"""When to say "unsure": decisions about a class whose error is controlled, by held-out rows.

A decision is wrong if another action would have been better for the row's true class. Its confidence is the probability
of the classes for which it is right. Decisions are taken from a threshold of confidence on, and the selective risk is
the share of wrong ones among those taken. The threshold is the lowest that passes a test on held-out rows: learn then
test (Angelopoulos, Bates, Candes, Jordan and Lei 2021, "Learn then test: calibrating predictive algorithms to achieve
risk control", doi:10.48550/arXiv.2110.01052).

The theorem: if the rows of the test are exchangeable with new ones, were answered as these are and chose nothing, the
risk is at most alpha with probability ``1 - DOUBT`` over their draw. What holds of the rows that a checkpoint keeps
depends on who judged them, as for bands (`model.calibration.conformal`):

split-conformal
    One member, which neither learned nor stopped by these rows: the theorem, but that the map of the probabilities is
    fitted to them, each row being scored with a map of the others.
cross-conformal, forward-conformal, pooled-conformal
    No theorem. Training chose the fit and when to stop by the same rows, and some of the members judged a row that all
    answer; or the members did before their last fit, to the newest rows; or the version before. With known truth the
    risk is above alpha in less than ``DOUBT`` of the cases of the first kind (``python -m benchmarks.abstain
    --known``): a few judges are less sure than all members.

For the k surest rows, of which e are wrong, the p-value of "the risk is above alpha" is ``P[Bin(k, alpha) <= e]``. The
numbers k are tested in `STARTS` rising sequences, each with its part of `DOUBT` until its first test that fails (fixed
sequence testing with several starts, their section 5.1). So the thresholds that pass are all right at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from murho.model.json_validation import Count, Counts, Matrix, MisfitError, Stored

DOUBT = 0.05
"""Probability, over the draw of held-out rows that chose nothing, that the selective risk is above its limit."""
STARTS = (0.3, 0.8)
"""Shares of the rows with which the sequences of tests begin."""
STEPS = 50
"""Tests of all rows, at most: with more, the last proven one is hardly better."""
MOST_ROWS, MOST_VALUES = 4_000, 40_000
"""Rows, and rows times classes, that a checkpoint keeps: about 300 kB of JSON."""
DIGITS = 6


@dataclass(frozen=True, eq=False)
class HeldOutClasses(Stored):
    """Held-out rows of classes with the probabilities that they were given, calibrated by other rows.

    Rows are exchangeable: one of each group. Rows unlike the training rows are not among them.

    Attributes:
        probabilities: ``[n, C]``.
        labels: Number of the class of each, ``[n]``.
        left_out: Number of rows unlike the training rows.
    """

    probabilities: Matrix
    labels: Counts
    left_out: Count = 0

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless there is a class for each row of probabilities."""
        if len(self.labels) != len(self.probabilities) or (
            len(self.labels) and int(self.labels.max()) >= self.probabilities.shape[1]
        ):
            raise MisfitError("labels", "the number of a class for each row of probabilities", self.labels.tolist())

    @classmethod
    def of(
        cls,
        probabilities: NDArray[np.float64],
        labels: NDArray[np.int64],
        outlier: NDArray[np.bool_],
        units: NDArray[np.int64],
        earlier: HeldOutClasses | None = None,
    ) -> Self:
        """Return what is kept of held-out rows.

        Args:
            probabilities: ``[n, C]``.
            labels: ``[n]``.
            outlier: Whether each is unlike the training rows, ``[n]``.
            units: Id of each row's exchangeable unit, ``[n]``.
            earlier: Rows that were held out before; they go first where there are too many.
        """
        first = np.zeros(len(labels), dtype=np.bool_)
        first[np.unique(units, return_index=True)[1]] = True
        kept = np.flatnonzero(first & ~outlier)
        most = max(1, min(MOST_ROWS, MOST_VALUES // max(1, probabilities.shape[1])))
        if len(kept) > most:  # evenly through the rows, whatever their order means
            kept = kept[np.linspace(0, len(kept) - 1, most).round().astype(np.int64)]
        kept = kept[np.lexsort(probabilities[kept].T)]  # their order in the table is nobody's business
        given, known, outliers = probabilities[kept].round(DIGITS), labels[kept], int((first & outlier).sum())
        if earlier is not None:
            given = np.concatenate([earlier.probabilities, given])[-most:]
            known, outliers = np.concatenate([earlier.labels, known])[-most:], outliers + earlier.left_out
        return cls(given, known, outliers)


def least_confidence(
    confidence: NDArray[np.float64], wrong: NDArray[np.bool_], risk: float, doubt: float = DOUBT
) -> float:
    """Confidence from which on decisions are wrong with a share of at most ``risk``; inf: none passes the test.

    See the module for the rows of which this is a guarantee.

    Args:
        confidence: Of the decision about each held-out row, ``[n]``.
        wrong: Whether it is wrong, ``[n]``.
        risk: alpha, strictly between 0 and 1.
        doubt: Probability that the risk is higher, if the rows chose nothing; strictly between 0 and 1.
    """
    rising = np.sort(confidence)
    count = len(rising)
    # Rows of the same confidence are taken together.
    steps = rising[count - np.unique(np.linspace(0, count, STEPS + 1).round().astype(np.int64))[1:]]
    levels = np.unique(steps)[::-1]
    numbers = count - np.searchsorted(rising, levels)
    errors = np.cumsum(wrong.astype(np.int64)[np.argsort(-confidence, kind="stable")])[numbers - 1]
    passed = bdtr(errors, numbers, risk) <= doubt / len(STARTS)
    proven = math.inf
    for share in STARTS:
        start = int(np.searchsorted(numbers, share * count))
        failed = np.flatnonzero(~passed[start:])
        end = start + int(failed[0]) if len(failed) else len(numbers)
        if end > start:
            proven = min(proven, float(levels[end - 1]))
    return proven
