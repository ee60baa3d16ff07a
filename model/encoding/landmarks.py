"""Landmarks: points amid the training rows, and the distance of a row to the nearest of them.

The Mahalanobis distance (`model.encoding.feature_distribution`) measures from the middle of the training rows, so a row
in a gap between two clusters is at no distance. It lies far from every landmark. Landmarks are the centres of k-means
(Lloyd 1982, "Least squares quantization in PCM"), in standard deviations of each number.

The distance from a landmark counts in units of its spacing, the mean distance from its nearest fellows, and the
smallest counts (as in the local outlier factor of Breunig et al. 2000): amid many rows a small gap is a gap, and in a
thin tail it is none. A missing cell does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.json_validation import expect_fields, expect_list, expect_number, expect_numbers, wrong

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Landmarks"]

MOST_LANDMARKS = 256
FELLOWS = 5
"""Number of other landmarks that make the spacing of one."""
LEAST_SPACING = 1e-3
"""Least spacing, in standard deviations: landmarks may fall together where rows repeat."""
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
        spacings: Mean distance of each from its nearest fellows, ``[L]``, in standard deviations.
        means: Mean of each number over the training rows, ``[F]``.
        stds: Standard deviation of each, ``[F]``.
        unit: Factor from a distance in spacings to one that is comparable with the Mahalanobis distance.
    """

    points: npt.NDArray[np.float64]
    spacings: npt.NDArray[np.float64]
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
        points = _rounded(_centres(standardised, count))
        return cls(points, _rounded(_spacings(points)), means, stds)

    def distances(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the smallest distance of rows ``[B, F]`` from a landmark in spacings, ``[B]``, each row by itself."""
        differences, nearest = self._search(values)
        return np.asarray(np.sqrt(np.square(differences).sum(axis=1)) / self.spacings[nearest] * self.unit)

    def differences(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return rows less the landmark nearest in standard deviations, ``[B, F]``, in these; 0 for a missing cell."""
        return self._evenly_spaced._search(values)[0]

    @cached_property
    def _evenly_spaced(self) -> Landmarks:
        return replace(self, spacings=np.ones(len(self.points)))

    def _search(self, values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]:
        """Return rows ``[B, F]`` less their nearest landmarks in spacings, and the numbers of these, ``[B]``."""
        rows = np.minimum(np.maximum((values - self.means) / self.stds, -FURTHEST), FURTHEST)
        nearest = np.empty(len(rows), dtype=np.intp)
        for start in range(0, len(rows), TILE_ROWS):
            nearest[start : start + TILE_ROWS] = self._nearest(rows[start : start + TILE_ROWS])
        differences = rows - self.points[nearest]
        differences[np.isnan(differences)] = 0.0
        return differences, nearest

    def _nearest(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
        """Return the number of the landmark that is nearest in spacings, of each standardised row of ``[B, F]``.

        A matrix product finds it, unless two are as near as its rounding, which depends on the other rows of a batch.
        Then each row is computed by itself.
        """
        missing = np.isnan(rows)
        known = np.where(missing, 0.0, rows) if missing.any() else rows
        sizes = np.square(known).sum(axis=1, keepdims=True)
        # (x - p)' (x - p) / spacing^2 of each row x and landmark p, as one product.
        squares = np.concatenate([known, sizes], axis=1) @ self._weights
        squares += ~missing @ self._squares if known is not rows else self._constants
        each, nearest = np.arange(len(rows)), squares.argmin(axis=1)
        rounding = ROUNDING * (sizes[:, 0] * self._weights[-1].max() + self._constants.max())
        least = squares[each, nearest] + rounding
        squares[each, nearest] = np.inf
        for row in np.flatnonzero(squares.min(axis=1) <= least):
            exact = np.nansum(np.square(rows[row] - self.points), axis=1)
            nearest[row] = (exact / np.square(self.spacings)).argmin()
        return np.asarray(nearest)

    @cached_property
    def _weights(self) -> npt.NDArray[np.float64]:
        """Weights of a standardised row and its square in its squared distance to each landmark, ``[F + 1, L]``."""
        columns = np.concatenate([-2.0 * self.points.T, np.ones((1, len(self.points)))])
        return np.ascontiguousarray(columns / np.square(self.spacings))

    @cached_property
    def _squares(self) -> npt.NDArray[np.float64]:
        """Part of each number of a landmark in that distance, ``[F, L]``."""
        return np.ascontiguousarray(np.square(self.points.T / self.spacings))

    @cached_property
    def _constants(self) -> npt.NDArray[np.float64]:
        return np.asarray(self._squares.sum(axis=0))

    def to_json(self) -> dict[str, Any]:
        """Return the landmarks as JSON data."""
        arrays = {"points": self.points, "spacings": self.spacings, "means": self.means, "stds": self.stds}
        return {**{name: array.tolist() for name, array in arrays.items()}, "unit": self.unit}

    @classmethod
    def from_json(cls, data: object, columns: int, where: str) -> Self:
        """Read what `to_json` returned.

        Raises:
            CheckpointError: The data don't fit; the message names the field, which begins with ``where``.
        """
        fields = expect_fields(data, where, ("points", "spacings", "means", "stds", "unit"))
        points = [
            expect_numbers(point, f"{where}.points") for point in expect_list(fields["points"], f"{where}.points")
        ]
        spacings, means, stds = (
            expect_numbers(fields[name], f"{where}.{name}") for name in ("spacings", "means", "stds")
        )
        unit = expect_number(fields["unit"], f"{where}.unit")
        if not points or {len(point) for point in points} != {columns}:
            raise wrong(f"{where}.points", f"points of {columns} numbers each", [len(point) for point in points])
        if len(spacings) != len(points) or min(spacings) <= 0.0:
            raise wrong(f"{where}.spacings", f"{len(points)} numbers above 0", list(spacings))
        if not len(means) == len(stds) == columns or min(*stds, unit) <= 0.0:
            raise wrong(where, f"{columns} means, {columns} stds above 0 and a unit above 0", [means, stds, unit])
        return cls(np.array(points), np.array(spacings), np.array(means), np.array(stds), unit)


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


def _spacings(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the mean distance of each point of ``[L, F]`` from its nearest fellows, ``[L]``."""
    squares = np.square(points[:, None] - points).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    nearest = np.sort(squares, axis=1)[:, : min(FELLOWS, len(points) - 1)]
    return np.asarray(np.maximum(np.sqrt(nearest).mean(axis=1), LEAST_SPACING))


def _rounded(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return numbers of any shape with `DIGITS` significant digits."""
    flat = [float(f"{number:.{DIGITS}g}") for number in numbers.ravel()]
    return np.array(flat).reshape(numbers.shape)
