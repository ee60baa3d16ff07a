"""What the network sees of the distance of a row from the training rows: inputs that are zero for training rows.

Two things make a row unlike the training rows though each of its numbers lies within its range
(`model.encoding.row_distance`): its combination of numbers, and that no training row is near. A combination has one
input of its own. Where no training row is near, the difference from the nearest landmark counts number by number, as if
each number were so far beyond its range (`model.encoding.range_distance`): a number that matters is doubted more than
one that does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from murho.model.encoding.row_distance import MOST_NAMED, RowDistances

if TYPE_CHECKING:
    import numpy.typing as npt

    from murho.model.data.schema import Columns
    from murho.model.encoding.feature_distribution import FeatureDistribution

__all__ = ["COMBINATION", "DistanceInputs", "isolated_numbers"]

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
