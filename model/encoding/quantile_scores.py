"""Normal scores of a number or a date: its empirical distribution, as knots of the quantile function.

The normal score of a value is the standard normal quantile of its rank among the training rows. A column of any shape
becomes about Gaussian in this way. Beyond the training range the score goes on linearly, in standard deviations of
the column: a value that lies far out in the column's own unit has a score far out, also for a uniform column.
`model.encoding.quantile_scores` computes the scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from murho.model.encoding.transforms import Scale
from murho.model.json_validation import Counts, MisfitError, Positive, Stored, Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = [
    "MOST_KNOTS",
    "QuantileScores",
    "ScoreTable",
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
    quantiles: npt.NDArray[np.float64] = torch.special.ndtri(torch.from_numpy(probabilities)).numpy()
    return quantiles


def normal_cdf(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return standard normal probabilities."""
    probabilities: npt.NDArray[np.float64] = torch.special.ndtr(torch.from_numpy(scores)).numpy()
    return probabilities


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

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless the values rise, and the counts are as many and rise too."""
        if not self.values.size or (np.diff(self.values) <= 0.0).any():
            raise MisfitError("values", "increasing numbers, at least one", self.values.tolist())
        if not len(self.values) == len(self.below) == len(self.upto):
            raise MisfitError("below", "as many counts as values", self.below.tolist())
        if (self.below >= self.upto).any() or (self.upto[:-1] > self.below[1:]).any():
            raise MisfitError("upto", "counts above those of below, increasing", self.upto.tolist())

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
        scores = np.interp(present, knots, raw.knot_scores)
        spread = float(scores.std())
        return cls(knots, below, upto, raw.std, float(scores.mean()), spread if spread > 0.0 else 1.0)

    @cached_property
    def knot_scores(self) -> npt.NDArray[np.float64]:
        """Standardised normal scores of the knots, ``[K]``: of the middle rank where several rows share a value."""
        middle = normal_quantile((self.below + self.upto) / (2.0 * self.upto[-1]))
        return np.asarray((middle - self.centre) / self.spread)

    def at(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the values with given normal scores of unit variance, any shape, within the training range."""
        return np.interp(normal_cdf(scores), self._probabilities, np.repeat(self.values, 2))

    @cached_property
    def _probabilities(self) -> npt.NDArray[np.float64]:
        """Probabilities of a value below, and up to, each knot, ``[2 K]``."""
        return np.asarray(np.stack([self.below, self.upto], axis=1).ravel() / self.upto[-1])


FURTHEST_SCORE = 1e6
"""Scores are clipped at ± this number, so that their squares stay finite."""
FEW_COMPARISONS = 2**16
"""Most comparisons of values with knots in one array; with more, each feature is searched by itself."""


@dataclass(frozen=True)
class ScoreTable:
    """Knots of F features, padded to the same number K.

    Attributes:
        knots: Values, increasing, ``[F, K]``; infinite where a feature has fewer.
        scores: Standardised scores of the knots, ``[F, K]``.
        slopes: Score per unit from each knot to the next, ``[F, K]``.
        last: Place of the last knot that begins a piece of the polygon, ``[F]``.
        ends: Smallest and largest training value, ``[2, F]``.
        units: Distance beyond the range that counts as a score of 1, ``[F]``.
    """

    knots: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float64]
    slopes: npt.NDArray[np.float64]
    last: npt.NDArray[np.intp]
    ends: npt.NDArray[np.float64]
    units: npt.NDArray[np.float64]

    @classmethod
    def of(cls, numbers: Sequence[QuantileScores]) -> Self:
        """Build the table of F features."""
        most = max((len(number.values) for number in numbers), default=1)
        knots = np.full((len(numbers), most), np.inf)
        scores, slopes = np.zeros_like(knots), np.zeros_like(knots)
        for row, number in enumerate(numbers):
            count = len(number.values)
            knots[row, :count] = number.values
            scores[row, :count] = number.knot_scores
            slopes[row, : count - 1] = np.diff(number.knot_scores) / np.diff(number.values)
        return cls(
            knots,
            scores,
            slopes,
            np.array([max(len(number.values) - 2, 0) for number in numbers], dtype=np.intp),
            np.array([(number.values[0], number.values[-1]) for number in numbers]).reshape(-1, 2).T,
            np.array([number.std * number.spread for number in numbers]),
        )

    def clipped(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return scores of values ``[B, F]`` clipped to their training range; NaN for NaN."""
        within = np.minimum(np.maximum(values, self.ends[0]), self.ends[1])
        places = self._places(within) + np.arange(len(self.knots)) * self.knots.shape[1]
        scores = self.scores.take(places) + self.slopes.take(places) * (within - self.knots.take(places))
        return np.asarray(scores)

    def beyond(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return what scores of values beyond the training range have in addition, ``[B, F]``; NaN for NaN."""
        with np.errstate(over="ignore"):
            distances = (values - np.minimum(np.maximum(values, self.ends[0]), self.ends[1])) / self.units
        return np.asarray(np.minimum(np.maximum(distances, -FURTHEST_SCORE), FURTHEST_SCORE))

    def _places(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
        """Return the place of the last knot up to each value, ``[B, F]``."""
        if values.size * self.knots.shape[1] <= FEW_COMPARISONS:
            places = (self.knots <= values[:, :, None]).sum(axis=2) - 1
        else:
            pairs = zip(self.knots, values.T, strict=True)
            places = np.stack([np.searchsorted(knots, column, side="right") for knots, column in pairs], axis=1) - 1
        return np.asarray(np.minimum(np.maximum(places, 0), self.last), dtype=np.intp)
