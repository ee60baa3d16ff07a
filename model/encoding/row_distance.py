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

__all__ = ["COMBINATION", "RowDistances", "distance_of", "encoded_distance", "odd_combinations"]

COMBINATION = "combination beyond the training rows"
"""Name of the network's input that holds `encoded_distance`."""
LEAST_UNLIKE = 1e-6
"""Smallest input of a row that is unlike the training rows: it marks the row, and changes no answer."""

MOST_NAMED = 3
"""Most features of a row that are named for their combination."""


def distance_of(distribution: FeatureDistribution, columns: Columns) -> npt.NDArray[np.float64]:
    """Return the distance of rows from the training rows, ``[B]``."""
    return RowDistances.of(distribution, columns).distances


def encoded_distance(distribution: FeatureDistribution, columns: Columns) -> npt.NDArray[np.float64]:
    """Return how far the combination of a row's cells is beyond reach: an input of the network, ``[B]``.

    It is 0 for a row that is like the training rows, and above 0 for any other: ``log(1 + excess)``. The excess is
    measured with every number clipped to its training range, and reduced by how far numbers are beyond, because these
    have inputs of their own (`model.encoding.range_distance`). The logarithm keeps the input from growing out of
    proportion where columns nearly determine each other: there a small move is a long distance.
    """
    rows = RowDistances.of(distribution, columns)
    excess = np.minimum(rows.distances, rows.clipped) - distribution.reach - rows.beyond
    further = np.log1p(np.maximum(excess, LEAST_UNLIKE))
    return np.where(rows.distances > distribution.reach, further, 0.0)


@dataclass(frozen=True, slots=True)
class RowDistances:
    """Distances of rows from the training rows.

    Attributes:
        scores: Complete scores with every number clipped to its training range, ``[B, Q]``.
        distances: Distance of each row, ``[B]``.
        clipped: Distance with every number clipped to its training range: what is due to the combination, ``[B]``.
        beyond: Euclidean norm of what the scores of numbers beyond their range have in addition, ``[B]``.
    """

    scores: npt.NDArray[np.float64]
    distances: npt.NDArray[np.float64]
    clipped: npt.NDArray[np.float64]
    beyond: npt.NDArray[np.float64]

    @classmethod
    def of(cls, distribution: FeatureDistribution, columns: Columns) -> Self:
        """Measure rows, each independently of the others; a missing cell does not count.

        Args:
            distribution: The distribution of the training rows.
            columns: Canonical columns of the features, ``[B]`` each.
        """
        known = distribution.clipped_scores(columns)
        scores = distribution.completed(known)
        clipped = distribution.distances(scores)
        beyond = distribution.scores_beyond(columns)
        norms = np.sqrt(np.square(np.nan_to_num(beyond)).sum(axis=1))
        rows = np.flatnonzero(norms)
        distances = clipped.copy()
        if rows.size:
            further = known[rows]
            further[:, : beyond.shape[1]] += beyond[rows]
            distances[rows] = distribution.distances(distribution.completed(further))
        return cls(scores, distances, clipped, norms)


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
