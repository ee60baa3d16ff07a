"""Distance of rows from the training rows, and the features that make a row far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from murho.model.encoding.score_correlation import row_sums

if TYPE_CHECKING:
    import numpy.typing as npt

    from murho.model.data.schema import Columns
    from murho.model.encoding.feature_distribution import FeatureDistribution

__all__ = ["RowDistances", "distance_of", "odd_combinations"]

MOST_NAMED = 3
"""Most features of a row that are named for their combination."""


def distance_of(distribution: FeatureDistribution, columns: Columns) -> npt.NDArray[np.float64]:
    """Return the distance of rows from the training rows, ``[B]``."""
    return RowDistances.of(distribution, columns).distances


@dataclass(frozen=True, slots=True)
class RowDistances:
    """Distances of rows from the training rows.

    Attributes:
        scores: Complete scores with every number clipped to its training range, ``[B, Q]``.
        beyond: Euclidean norm of what the scores of numbers beyond their range have in addition, ``[B]``.
        combined: Mahalanobis distance, ``[B]``.
        combined_within: The same with every number clipped to its training range: what is due to the combination.
        apart: Distance to the nearest landmark, ``[B]``; 0 where there are no landmarks.
        apart_within: The same with every number clipped to its training range.
    """

    scores: npt.NDArray[np.float64]
    beyond: npt.NDArray[np.float64]
    combined: npt.NDArray[np.float64]
    combined_within: npt.NDArray[np.float64]
    apart: npt.NDArray[np.float64]
    apart_within: npt.NDArray[np.float64]

    @property
    def distances(self) -> npt.NDArray[np.float64]:
        """Distance of each row: the larger one of the two, ``[B]``."""
        return np.maximum(self.combined, self.apart)

    @property
    def within(self) -> npt.NDArray[np.float64]:
        """The same with every number clipped to its training range, ``[B]``."""
        return np.maximum(self.combined_within, self.apart_within)

    @classmethod
    def of(cls, distribution: FeatureDistribution, columns: Columns) -> Self:
        """Measure rows, each independently of the others; a missing cell does not count.

        Args:
            distribution: The distribution of the training rows.
            columns: Canonical columns of the features, ``[B]`` each.
        """
        known = distribution.clipped_scores(columns)
        scores = distribution.completed(known)
        within = distribution.distances(scores)
        values = distribution.values(columns)
        beyond = distribution.scores_beyond(values)
        norms = np.sqrt(np.square(np.nan_to_num(beyond)).sum(axis=1))
        rows = np.flatnonzero(norms)
        combined = within.copy()
        if rows.size:
            further = known[rows]
            further[:, : beyond.shape[1]] += beyond[rows]
            combined[rows] = distribution.distances(distribution.completed(further))
        landmarks = distribution.landmarks
        if landmarks is None:
            return cls(scores, norms, combined, within, np.zeros(len(norms)), np.zeros(len(norms)))
        apart_within = landmarks.distances(distribution.clipped_values(values))
        apart = apart_within.copy()
        if rows.size:
            apart[rows] = landmarks.distances(values[rows])
        return cls(scores, norms, combined, within, apart, apart_within)


def odd_combinations(
    distribution: FeatureDistribution, scores: npt.NDArray[np.float64]
) -> list[list[tuple[str, str | None]]]:
    """Return the features that make the combination of each row unusual, each with the one that it fits least.

    One number after the other is set to what the row's other cells let expect: the one that brings the row nearest to
    the training rows first, until the row is within reach. Replacing number i changes ``d^2`` by ``q_i^2 / P_ii`` with
    ``q = P r`` (`model.encoding.feature_distribution`).

    Args:
        distribution: The distribution of the training rows.
        scores: Complete scores of the B rows, ``[B, Q]``; not changed.

    Returns:
        For each row, one to three pairs of features; the second is None for a table of one column.
    """
    named: list[list[tuple[str, str | None]]] = [[] for _ in scores]
    count, precision = len(distribution.numbers), distribution.precision
    if not count:
        return named
    owners = distribution.owners
    rows, values, taken = np.arange(len(scores)), scores, np.zeros((len(scores), count), dtype=np.bool_)
    slopes = row_sums(values, precision[:count].T)
    squares = np.square(distribution.distances(values))
    for turn in range(MOST_NAMED):
        gains = np.where(taken, -1.0, np.square(slopes) / np.diagonal(precision)[:count])
        left = gains.max(axis=1) > 0.0
        if turn:
            left &= squares > distribution.reach**2
        rows, values, taken, slopes, squares, gains = (
            part[left] for part in (rows, values, taken, slopes, squares, gains)
        )
        each, worst = np.arange(len(rows)), gains.argmax(axis=1)
        pulls = np.where(distribution.same_owner[worst], -1.0, np.abs(precision[worst] * values))
        partners = pulls.argmax(axis=1)
        for row, place, partner, pull in zip(
            rows.tolist(), worst.tolist(), partners.tolist(), pulls.max(axis=1).tolist(), strict=True
        ):
            named[row].append((owners[place], owners[partner] if pull >= 0.0 else None))
        change = -slopes[each, worst] / precision[worst, worst]
        taken[each, worst] = True
        squares = squares - gains[each, worst]
        values[each, worst] += change
        slopes = slopes + precision[:count, worst].T * change[:, None]
    return named
