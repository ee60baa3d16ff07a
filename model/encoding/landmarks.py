"""Landmarks of the training rows: the centres of k-means (Lloyd 1982, "Least squares quantization in PCM").

The Mahalanobis distance measures from the middle of the training rows, so a row in a gap between two clusters is at no
distance. It lies far from every landmark, in standard deviations of each number.

The distance from a landmark counts in units of its spacing, the mean distance from its nearest fellows, and the
smallest counts (as in the local outlier factor of Breunig et al. 2000): amid many rows a small gap is a gap, and in a
thin tail it is none. A missing cell does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from murho.model.arrays import Doubles, Floats, Places
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
ROUNDING = 1e-12
"""Bound on the rounding of a squared distance by a matrix product, relative to the squares that it adds up."""
QUICK_ROUNDING = 1e-4
"""The same in single precision, for at most a thousand terms."""
WIDEST = 32
"""Landmarks of the widest spacing that are looked at first: of rows like the training rows, nearly all are near one."""
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

    def distances(self, values: Doubles, enough: float = 0.0) -> Doubles:
        """Return the smallest distance of rows ``[B, F]`` from a landmark, in spacings times the unit, ``[B]``.

        It is 0 where a landmark is within ``enough`` for sure. Nearly all rows are near one of the widest landmarks,
        which are looked at first.
        """
        found = np.zeros(len(values))
        rows = np.arange(len(values))
        inputs = self._inputs(values)
        if enough > 0.0:
            quick = inputs.T.astype(np.float32)
            for weights in self._quick_weights:
                if rows.size:
                    with np.errstate(invalid="ignore", over="ignore"):  # what overflows is far from all of them
                        squares = weights @ (quick if len(rows) == len(values) else quick[:, rows])
                    rows = rows[~(squares.min(axis=0) <= (enough / self.unit) ** 2)]
        if rows.size:
            differences, nearest = self._search(inputs[rows], np.square(self.spacings))
            lengths = np.sqrt(np.square(differences).sum(axis=1))
            found[rows] = lengths / self.spacings[nearest] * self.unit
        return found

    def differences(self, values: Doubles) -> Doubles:
        """Return rows less the landmark nearest in standard deviations, ``[B, F]``, in these; 0 for a missing cell."""
        return self._search(self._inputs(values), np.ones(len(self.points)))[0]

    def _search(self, inputs: Doubles, units: Doubles) -> tuple[Doubles, Places]:
        """Return rows less their nearest landmarks, ``[B, F]``, and the numbers of these, ``[B]``.

        One matrix product finds them. How it rounds depends on the other rows of a batch; so of landmarks that are as
        near but for rounding, the first one counts.

        Args:
            inputs: The rows as `_inputs` returns them.
            units: What the squared distance from each landmark is divided by, ``[L]``.
        """
        count = len(self.means)
        squares = inputs @ self._weights
        squares /= units
        rounding = ROUNDING * (inputs[:, count, None] + self._largest) / units.min()
        nearest = (squares <= squares.min(axis=1, keepdims=True) + rounding).argmax(axis=1)
        return (inputs[:, :count] - self.points[nearest]) * inputs[:, count + 1 :], nearest

    def _inputs(self, values: Doubles) -> Doubles:
        """Return what the weights multiply, ``[B, 2 F + 1]``.

        The standardised numbers of rows ``[B, F]``, 0 for a missing cell; the sum of their squares; 1 for known cells,
        else 0.
        """
        rows = np.minimum(np.maximum((values - self.means) / self.stds, -FURTHEST), FURTHEST)
        present = ~np.isnan(rows)
        known = np.where(present, rows, 0.0)
        sizes = np.einsum("bf,bf->b", known, known)[:, None]
        return np.concatenate([known, sizes, present], axis=1)

    @cached_property
    def _weights(self) -> Doubles:
        """Weights of known numbers, of the sum of their squares and of which are known in squared distances.

        ``[2 F + 1, L]``: (x - p)² = x² - 2 x p + p², for the known numbers alone.
        """
        points = self.points.T
        return np.concatenate([-2.0 * points, np.ones((1, points.shape[1])), np.square(points)])

    @cached_property
    def _quick_weights(self) -> tuple[Floats, ...]:
        """The same in units of the spacing, for the widest landmarks and for the others, ``[L, 2 F + 1]``.

        In single precision: squares count for a little more, so that rounding makes no row near.
        """
        weights = self._weights.copy()
        weights[len(self.means) :] *= 1.0 + QUICK_ROUNDING
        order = np.argsort(-self.spacings, kind="stable")
        quick = (weights / np.square(self.spacings)).T[order].astype(np.float32)
        return tuple(part for part in (quick[:WIDEST], quick[WIDEST:]) if len(part))

    @cached_property
    def _largest(self) -> float:
        return float(np.square(self.points).sum(axis=1).max())


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
