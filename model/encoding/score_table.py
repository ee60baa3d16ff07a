"""Normal scores of all numbers of a row at once: the knots of `model.encoding.quantile_scores` as one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from murho.model.encoding.quantile_scores import QuantileScores

__all__ = ["ScoreTable"]

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
