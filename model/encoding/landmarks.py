"""Landmarks: points amid the training rows, and the distance of a row to the nearest of them.

The Mahalanobis distance (`model.encoding.feature_distribution`) measures from the middle of the training rows, so a row
in a gap between two clusters is at no distance. It lies far from every landmark. Landmarks are the centres of k-means
(Lloyd 1982, "Least squares quantization in PCM"), in standard deviations of each number. A missing cell does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.json_validation import expect_fields, expect_list, expect_number, expect_numbers, wrong

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Landmarks"]

MOST_LANDMARKS = 256
MOST_CELLS = 8192
"""Most numbers of all landmarks together: they take 100 KB of ``model.json``, and an answer measures them all."""
ROWS_OF_A_LANDMARK = 2
"""Least number of training rows for each landmark, on average."""
LANDMARKS_OF_A_COLUMN = 4
"""Least number of landmarks for each number: with fewer, every row is far from all of them."""
ITERATIONS = 10
MOST_ROWS = 5000
"""Most training rows that k-means reads."""
SEED = 0
FURTHEST = 1e6
"""Differences are clipped at ± this number of standard deviations, so that their squares stay finite."""
TILE_ROWS = 64
"""Rows of a tile, whose distances stay in the processor's cache."""
ROUNDING = 1e-12
"""Bound on the rounding of a distance by a matrix product, relative to the squares that it adds up."""
DIGITS = 5
"""Significant digits of a landmark."""


@dataclass(frozen=True)
class Landmarks:
    """L landmarks of F numbers.

    Attributes:
        points: Standardised, ``[L, F]``.
        means: Mean of each number over the training rows, ``[F]``.
        stds: Standard deviation of each, ``[F]``.
        unit: Factor from a distance in standard deviations to one that is comparable with the Mahalanobis distance.
    """

    points: npt.NDArray[np.float64]
    means: npt.NDArray[np.float64]
    stds: npt.NDArray[np.float64]
    unit: float = 1.0

    @classmethod
    def fit(cls, values: npt.NDArray[np.float64], stds: npt.NDArray[np.float64]) -> Self | None:
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
        standardised = np.nan_to_num((values[:MOST_ROWS] - means) / stds)
        return cls(_rounded(_centres(standardised, count)), means, stds)

    def distances(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the distance of rows ``[B, F]`` to the nearest landmark, ``[B]``, each row by itself."""
        return np.asarray(np.sqrt(np.square(self.differences(values)).sum(axis=1)) * self.unit)

    def differences(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return rows less their nearest landmark, ``[B, F]``, in standard deviations; 0 for a missing cell."""
        rows = np.minimum(np.maximum((values - self.means) / self.stds, -FURTHEST), FURTHEST)
        differences = np.empty(rows.shape)
        for start in range(0, len(rows), TILE_ROWS):
            tile = rows[start : start + TILE_ROWS]
            differences[start : start + TILE_ROWS] = tile - self.points[self._nearest(tile)]
        differences[np.isnan(differences)] = 0.0
        return differences

    def _nearest(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
        """Return the number of the nearest landmark of each standardised row of ``[B, F]``.

        A matrix product finds it, unless two are as near as its rounding, which depends on the other rows of a batch.
        Then each row is computed by itself.
        """
        missing = np.isnan(rows)
        if missing.any():
            filled = np.where(missing, 0.0, rows)
            squares = filled @ self._directions + ~missing @ self._squares
        else:
            filled = rows
            squares = rows @ self._directions
            squares += self._sizes
        # The square of the row itself, which is the same for all landmarks, is left out.
        each, nearest = np.arange(len(rows)), squares.argmin(axis=1)
        rounding = ROUNDING * (np.square(filled).sum(axis=1) + self._sizes.max())
        least = squares[each, nearest] + rounding
        squares[each, nearest] = np.inf
        for row in np.flatnonzero(squares.min(axis=1) <= least):
            nearest[row] = np.nansum(np.square(rows[row] - self.points), axis=1).argmin()
        return np.asarray(nearest)

    @cached_property
    def _directions(self) -> npt.NDArray[np.float64]:
        return np.ascontiguousarray(-2.0 * self.points.T)

    @cached_property
    def _squares(self) -> npt.NDArray[np.float64]:
        return np.ascontiguousarray(np.square(self.points).T)

    @cached_property
    def _sizes(self) -> npt.NDArray[np.float64]:
        return np.asarray(self._squares.sum(axis=0))

    def to_json(self) -> dict[str, Any]:
        """Return the landmarks as JSON data."""
        return {
            "points": self.points.tolist(),
            "means": self.means.tolist(),
            "stds": self.stds.tolist(),
            "unit": self.unit,
        }

    @classmethod
    def from_json(cls, data: object, columns: int, where: str) -> Self:
        """Read what `to_json` returned.

        Raises:
            CheckpointError: The data don't fit; the message names the field, which begins with ``where``.
        """
        fields = expect_fields(data, where, ("points", "means", "stds", "unit"))
        points = [
            expect_numbers(point, f"{where}.points") for point in expect_list(fields["points"], f"{where}.points")
        ]
        means, stds = (expect_numbers(fields[name], f"{where}.{name}") for name in ("means", "stds"))
        unit = expect_number(fields["unit"], f"{where}.unit")
        if not points or {len(point) for point in points} != {columns}:
            raise wrong(f"{where}.points", f"points of {columns} numbers each", [len(point) for point in points])
        if not len(means) == len(stds) == columns or min(*stds, unit) <= 0.0:
            raise wrong(where, f"{columns} means, {columns} stds above 0 and a unit above 0", [means, stds, unit])
        return cls(np.array(points), np.array(means), np.array(stds), unit)


def _centres(rows: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """Return ``count`` centres of k-means of rows ``[N, F]``."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    centres = rows[np.sort(generator.permutation(len(rows))[:count])]
    for _ in range(ITERATIONS):
        sizes = np.square(centres).sum(axis=1)
        owners = np.concatenate(
            [
                (sizes - 2.0 * (rows[start : start + TILE_ROWS] @ centres.T)).argmin(axis=1)
                for start in range(0, len(rows), TILE_ROWS)
            ]
        )
        sizes = np.bincount(owners, minlength=count)
        sums = np.stack([np.bincount(owners, column, minlength=count) for column in rows.T], axis=1)
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return centres


def _rounded(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.array([[float(f"{number:.{DIGITS}g}") for number in point] for point in points])
