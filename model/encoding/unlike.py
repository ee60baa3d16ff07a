"""How unlike the training rows a row is: its distance, and the inputs that tell the network.

What the network sees of the distance of a row from the training rows: inputs that are zero for training rows.

Two things make a row unlike the training rows though each of its numbers lies within its range
(`model.encoding.unlike`): its combination of numbers, and that no training row is near. A combination has one
input of its own. Where no training row is near, the difference from the nearest landmark counts number by number, as if
each number were so far beyond its range (`model.encoding.continuation`): a number that matters is doubted more than
one that does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from murho.model.encoding.feature_distribution import row_sums

if TYPE_CHECKING:
    import numpy.typing as npt

    from murho.model.encoding.feature_distribution import FeatureDistribution
    from murho.model.tables.schema import Columns

__all__ = [
    "COMBINATION",
    "DistanceInputs",
    "RowDistances",
    "distance_of",
    "isolated_numbers",
    "odd_combinations",
]


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


COMBINATION = "combination beyond the training rows"
"""Name of the network's input for the combination."""
LEAST_UNLIKE = 1e-6
"""Smallest input of a row that is unlike the training rows: it marks the row, and changes no answer."""


@dataclass(frozen=True, slots=True)
class DistanceInputs:
    """Inputs of B rows; each row is encoded independently of the others.

    Attributes:
        combination: 0 for a row that is like the training rows, above 0 for any other, ``[B]``: ``log(1 + excess)``.
            The excess is the Mahalanobis distance beyond reach, with every number clipped to its training range, and
            less what numbers are beyond, because these have inputs of their own. The logarithm keeps the input from
            growing out of proportion where columns nearly determine each other: there a small move is a long distance.
        isolated: Indices of the rows that no training row is near, ``[R]``.
        differences: Their numbers less those of the nearest landmark, in standard deviations, reduced by the reach,
            ``[R, F]``.
    """

    combination: npt.NDArray[np.float64]
    isolated: npt.NDArray[np.intp]
    differences: npt.NDArray[np.float64]

    @classmethod
    def of(cls, distribution: FeatureDistribution, columns: Columns) -> Self:
        """Encode rows.

        Args:
            distribution: The distribution of the training rows.
            columns: Canonical columns of the features, ``[B]`` each.
        """
        rows = RowDistances.of(distribution, columns)
        reach = distribution.reach
        excess = np.minimum(rows.combined, rows.combined_within) - reach - rows.beyond
        further = np.log1p(np.maximum(excess, LEAST_UNLIKE))
        combination = np.where(rows.distances > reach, further, 0.0)
        distances = np.minimum(rows.apart, rows.apart_within)
        isolated = np.flatnonzero(distances > reach)
        if distribution.landmarks is None or not isolated.size:
            return cls(combination, isolated, np.zeros((len(isolated), len(distribution.numbers))))
        values = distribution.clipped_values(distribution.values(columns)[isolated])
        differences = distribution.landmarks.differences(values)
        return cls(combination, isolated, differences * (1.0 - reach / distances[isolated, None]))


def isolated_numbers(
    distribution: FeatureDistribution, columns: Columns, rows: npt.NDArray[np.intp]
) -> list[list[tuple[str, float]]]:
    """Return the numbers in which rows differ most from the nearest landmark, each with the landmark's value.

    Each row gets the number that differs most, and further ones until it would be within reach without them.

    Args:
        distribution: The distribution of the training rows.
        columns: Canonical columns of the features.
        rows: Indices of the B rows to look at.

    Returns:
        For each row, one to three numbers; none without landmarks.
    """
    landmarks = distribution.landmarks
    if landmarks is None:
        return [[] for _ in rows]
    values = distribution.clipped_values(distribution.values(columns)[rows])
    differences = landmarks.differences(values)
    nearest = values - differences * landmarks.stds
    squares = np.square(differences)
    squares *= (np.square(landmarks.distances(values)) / squares.sum(axis=1).clip(1e-300))[:, None]
    order = np.argsort(-squares, axis=1, kind="stable")[:, :MOST_NAMED]
    left = squares.sum(axis=1, keepdims=True) - np.cumsum(np.take_along_axis(squares, order, axis=1), axis=1)
    counts = 1 + (left[:, :-1] > distribution.reach**2).sum(axis=1)
    names = tuple(distribution.numbers)
    return [
        [(names[place], float(nearest[row, place])) for place in order[row, :count] if squares[row, place] > 0.0]
        for row, count in enumerate(counts.tolist())
    ]
