"""Landmarks of the training rows: the centres of k-means (Lloyd 1982, "Least squares quantization in PCM").

The Mahalanobis distance measures from the middle of the training rows, so a row in a gap between two clusters is at no
distance. It lies far from every landmark, in standard deviations of each number.

The distance from a landmark counts in units of its spacing, the mean distance from its nearest fellows, and the
smallest counts (as in the local outlier factor of Breunig et al. 2000): amid many rows a small gap is a gap, and in a
thin tail it is none. A missing cell does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from murho.model.arrays import Bools, Doubles, Places, group_equal
from murho.model.json_validation import Matrix, Positive, Stored, Vector

MOST_LANDMARKS = 256
FELLOWS = 5
"""Number of other landmarks that make the spacing of one."""
LEAST_SPACING = 1e-3
"""Least spacing, in standard deviations: landmarks may fall together where rows repeat."""
MOST_CELLS = 8192
"""Most numbers of all landmarks together: they take 100 KB of ``model.json``, and an answer measures them all."""
ROWS_OF_A_LANDMARK = 2
"""Least number of training rows for each landmark, on average."""
FEWEST_ROWS = 3
"""Least number of training rows that a landmark is the mean of, so that it tells of no row by itself."""
LANDMARKS_OF_A_COLUMN = 4
"""Least number of landmarks for each number: with fewer, every row is far from all of them."""
ITERATIONS = 10
MOST_ROWS = 5000
"""Most training rows that k-means reads."""
SEED = 0
FURTHEST = 1e6
"""Scores, and differences in standard deviations, are clipped at ± this number, so that their squares stay finite."""
DECIMALS = 5
"""Digits after the point of a landmark, in standard deviations."""


@dataclass(frozen=True)
class Landmarks(Stored):
    """L landmarks of F numbers.

    Attributes:
        points: Standardised, ``[L, F]``.
        spacings: Mean distance of each from its nearest fellows, ``[L]``, in standard deviations.
        means: Mean of each number over the training rows, ``[F]``.
        stds: Standard deviation of each, ``[F]``.
        unit: Factor from a distance in spacings to one that is comparable with the Mahalanobis distance.
    """

    points: Matrix
    spacings: Vector
    means: Vector
    stds: Vector
    unit: Positive = 1.0

    @classmethod
    def fit(cls, values: Doubles, stds: Doubles) -> Self | None:
        """Find the landmarks of training rows.

        Args:
            values: Numbers and dates of the training rows in random order, ``[N, F]``; NaN for a missing cell, which is
                taken for the mean here.
            stds: Standard deviation of each, ``[F]``.

        Returns:
            The landmarks; None where the rows are too few or the columns none or too many.
        """
        rows, columns = values.shape
        count = min(MOST_LANDMARKS, rows // ROWS_OF_A_LANDMARK, MOST_CELLS // max(columns, 1))
        if not columns or count < LANDMARKS_OF_A_COLUMN * columns:
            return None
        means = np.nanmean(values, axis=0)
        points = _centres(np.nan_to_num((values[:MOST_ROWS] - means) / stds), count).round(DECIMALS)
        squares = np.square(points[:, None] - points).sum(axis=2)
        nearest = np.sqrt(np.sort(squares, axis=1)[:, 1 : FELLOWS + 1])  # the first one is the landmark itself
        return cls(points, np.maximum(nearest.mean(axis=1), LEAST_SPACING).round(DECIMALS), means, stds)

    def distances(self, values: Doubles) -> Doubles:
        """Return the smallest distance of rows ``[B, F]`` from a landmark, in spacings times the unit, ``[B]``."""
        distances = np.empty(len(values))
        for rows, _, _, of_rows in self._measure(values):
            distances[rows] = (of_rows / self.spacings).min(axis=1) * self.unit
        return distances

    def differences(self, values: Doubles) -> Doubles:
        """Return rows less the landmark nearest in standard deviations, ``[B, F]``, in these; 0 for a missing cell."""
        differences = np.zeros_like(values)
        for rows, known, cells, of_rows in self._measure(values):
            differences[np.ix_(rows, known)] = cells - self.points[np.ix_(of_rows.argmin(axis=1), known)]
        return differences

    def _measure(self, values: Doubles) -> Iterator[tuple[Places, Bools, Doubles, Doubles]]:
        """Measure the rows with the same known cells at once.

        Yields:
            Numbers of these rows, ``[n]``; which cells are known, ``[F]``; the known cells, standardised, ``[n, K]``;
            and the distances from all landmarks in standard deviations, ``[n, L]``.
        """
        standardised = np.minimum(np.maximum((values - self.means) / self.stds, -FURTHEST), FURTHEST)
        for known, rows in group_equal(~np.isnan(standardised)):
            cells = standardised[rows][:, known]
            both = torch.from_numpy(cells), torch.from_numpy(self.points[:, known])
            # A matrix product would be faster for many rows, but round by the other rows of the batch.
            yield rows, known, cells, torch.cdist(*both, compute_mode="donot_use_mm_for_euclid_dist").numpy()


def _centres(rows: Doubles, count: int) -> Doubles:
    """Return ``count`` centres of k-means of rows ``[N, F]``; of a smaller cluster, the mean of the nearest rows."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    centres = rows[np.sort(generator.permutation(len(rows))[:count])]
    for _ in range(ITERATIONS):
        owners = (np.square(centres).sum(axis=1) - 2.0 * rows @ centres.T).argmin(axis=1)
        members = np.eye(count)[owners]
        sizes = members.sum(axis=0)[:, None]
        centres = np.where(sizes > 0.0, members.T @ rows / np.maximum(sizes, 1.0), centres)
    for landmark in np.flatnonzero(sizes < FEWEST_ROWS):
        squares = np.square(rows - centres[landmark]).sum(axis=1)
        centres[landmark] = rows[np.argpartition(squares, FEWEST_ROWS - 1)[:FEWEST_ROWS]].mean(axis=0)
    return centres
