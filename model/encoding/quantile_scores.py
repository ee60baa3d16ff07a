"""Normal scores of a number or a date: its empirical distribution, as knots of the quantile function.

The normal score of a value is the standard normal quantile of its rank among the training rows. A column of any shape
becomes about Gaussian in this way. Beyond the training range the score goes on linearly, in standard deviations of
the column: a value that lies far out in the column's own unit has a score far out, also for a uniform column.
`model.encoding.quantile_scores` computes the scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from murho.model.encoding.transforms import Scale
from murho.model.json_validation import Counts, Positive, Stored, Vector

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "MOST_KNOTS",
    "QuantileScores",
    "normal_cdf",
    "normal_quantile",
]

MOST_KNOTS = 41
"""Most knots of a feature: the extremes and ranks that are evenly spaced in normal scores between them. A feature with
fewer distinct values has a knot at each of them, and its quantile function is a staircase."""
OUTERMOST = 2.8
"""Normal score of the outermost knots but the extremes."""


def normal_quantile(probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return standard normal quantiles."""
    return np.asarray(torch.special.ndtri(torch.from_numpy(probabilities)))


def normal_cdf(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return standard normal probabilities."""
    return np.asarray(torch.special.ndtr(torch.from_numpy(scores)))


@dataclass(frozen=True)
class QuantileScores(Stored):
    """The empirical distribution of one number or date over the training rows.

    Attributes:
        values: Knots, increasing, ``[K]``; the first and the last are the extremes of the training rows.
        below: Number of training rows with a smaller value than each knot, ``[K]``.
        upto: Number of training rows with a value up to each knot, ``[K]``.
        std: Standard deviation of the feature over the training rows.
        centre: Mean of the normal scores of the training rows, before standardisation.
        spread: Their standard deviation: below 1 for a feature with few distinct values.
    """

    values: Vector
    below: Counts
    upto: Counts
    std: Positive
    centre: float = 0.0
    spread: Positive = 1.0

    @classmethod
    def fit(cls, column: npt.NDArray[np.float64]) -> Self | None:
        """Fit to the column ``[N]`` of the training rows; NaN is ignored. None if there is no value."""
        present = np.sort(column[~np.isnan(column)])
        if not present.size:
            return None
        knots = np.unique(present)
        if knots.size > MOST_KNOTS:
            scores = np.linspace(-OUTERMOST, OUTERMOST, MOST_KNOTS - 2)
            ranks = np.floor(normal_cdf(scores) * present.size).astype(np.int64)
            knots = np.unique(present[np.concatenate([[0], ranks, [present.size - 1]])])
        below, upto = (np.searchsorted(present, knots, side=side) for side in ("left", "right"))
        raw = cls(knots, below, upto, Scale.fit(column).std)
        scores = raw.within(present)
        return replace(raw, centre=float(scores.mean()), spread=float(scores.std()) or 1.0)

    @cached_property
    def knot_scores(self) -> npt.NDArray[np.float64]:
        """Standardised normal scores of the knots, ``[K]``: of the middle rank where several rows share a value."""
        middle = normal_quantile((self.below + self.upto) / (2.0 * self.upto[-1]))
        return np.asarray((middle - self.centre) / self.spread)

    def within(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return scores of values ``[B]`` clipped to the training range: a polygon through the knots. NaN for NaN."""
        return np.interp(values, self.values, self.knot_scores)

    def at(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the values with given normal scores of unit variance, any shape, within the training range."""
        return np.interp(normal_cdf(scores), self._probabilities, np.repeat(self.values, 2))

    @cached_property
    def _probabilities(self) -> npt.NDArray[np.float64]:
        """Probabilities of a value below, and up to, each knot, ``[2 K]``."""
        return np.asarray(np.stack([self.below, self.upto], axis=1).ravel() / self.upto[-1])
