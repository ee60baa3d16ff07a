"""The joint distribution of the features over the training rows: a Gaussian copula.

Each number or date has normal scores (`model.encoding.quantile_scores`), each boolean or category indicators of its
frequent levels. One correlation matrix joins them.
A checkpoint stores these and the landmarks, of which one may be a training row where rows are few. Two things follow:

- the distance of a row from the training rows, and the features that make it far (`model.encoding.unlike`);
- what a missing cell may have been, given the row's other cells (`model.encoding.imputation`).

The distance is the larger one of two. One is the Mahalanobis distance of the scores of numbers and dates, given the
row's levels: ``d^2 = r' P r`` with ``r = z - E[z given levels]`` and P the inverse of the covariance of z given the
levels. The other one is that to the nearest training rows. A level is never far by itself:
an unseen one has its own warning. The limit of ordinary distances, `FeatureDistribution.reach`, comes from rows that
the distribution was not fitted to.

Correlation of the normal scores of features, shrunk as far as held-out rows say.

A sample correlation matrix of few rows has eigenvalues that are too small: directions in which the training rows
happen to vary little. A fresh row would then seem far from them. The matrix is shrunk towards the identity (Ledoit
and Wolf 2004, "A well-conditioned estimator for large-dimensional covariance matrices"); how far, the likelihood of
held-out rows decides. So a direction of small variance that held-out rows share is kept.

Landmarks: points amid the training rows, and the distance of a row to the nearest of them.

The Mahalanobis distance measures from the middle of the training rows, so a row
in a gap between two clusters is at no distance. It lies far from every landmark. Landmarks are the centres of k-means
(Lloyd 1982, "Least squares quantization in PCM"), in standard deviations of each number.

The distance from a landmark counts in units of its spacing, the mean distance from its nearest fellows, and the
smallest counts (as in the local outlier factor of Breunig et al. 2000): amid many rows a small gap is a gap, and in a
thin tail it is none. A missing cell does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from murho.model.encoding.quantile_scores import QuantileScores, ScoreTable
from murho.model.json_validation import Counts, Matrix, MisfitError, Positive, Stored, Vector, stored_as
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from murho.model.tables.schema import Columns, Feature, Schema

__all__ = [
    "MOST_COLUMNS",
    "SHRINKAGES",
    "FeatureDistribution",
    "Landmarks",
    "LevelShares",
    "best_shrinkage",
    "marginals",
    "row_sums",
    "sample_correlation",
    "shrunk",
]


LEAST_SHARE = 0.05
"""Least share of a level with an indicator. A rarer one would have a standardised indicator far from Gaussian."""


@dataclass(frozen=True)
class LevelShares(Stored):
    """Counts of the levels of a feature over the training rows.

    Attributes:
        levels: The categories of the feature, or 0 and 1.
        counts: Number of training rows with each level, ``[L]``.
    """

    levels: tuple[str, ...] | tuple[float, ...]
    counts: Counts

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless each level has a count."""
        if len(self.counts) != len(self.levels):
            raise MisfitError("counts", f"{len(self.levels)} counts", self.counts.tolist())

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self | None:
        """Count the levels of the column ``[N]`` of the training rows; None if all cells are missing."""
        shares = cls(_levels(feature), np.zeros(len(_levels(feature)), dtype=np.int64))
        codes = shares.codes(column)
        counts = np.bincount(codes[codes >= 0], minlength=len(shares.levels))
        return cls(shares.levels, counts) if counts.sum() else None

    def codes(self, column: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the level of each cell of ``[B]``, -1 for missing cells and unseen categories."""
        if column.dtype == object:
            return np.fromiter((self._places.get(value, -1) for value in column), dtype=np.int64, count=len(column))
        return np.where(np.isnan(column), -1, column != 0.0).astype(np.int64)

    @cached_property
    def shares(self) -> npt.NDArray[np.float64]:
        """Share of each level among the training rows with a value, ``[L]``."""
        return np.asarray(self.counts / self.counts.sum())

    @cached_property
    def indicated(self) -> npt.NDArray[np.intp]:
        """The levels with an indicator, the most frequent first: all with `LEAST_SHARE` but the most frequent one."""
        order = np.argsort(-self.counts, kind="stable")[1:]
        return order[self.shares[order] >= LEAST_SHARE]

    @cached_property
    def stds(self) -> npt.NDArray[np.float64]:
        """Standard deviation of the indicator of each level, ``[L]``."""
        return np.sqrt(self.shares * (1.0 - self.shares))

    def indicators(self, codes: npt.NDArray[np.int64], levels: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Return standardised indicators of some levels, ``[..., len(levels)]``; NaN where the code is -1.

        Args:
            codes: Levels of rows, any shape.
            levels: The levels that are indicated.
        """
        standardised = ((codes[..., None] == levels) - self.shares[levels]) / self.stds[levels]
        return np.where(codes[..., None] < 0, np.nan, standardised)

    def column(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the canonical column of levels, in the shape of the codes."""
        levels = np.empty(len(self.levels), dtype=object if isinstance(self.levels[0], str) else np.float64)
        levels[:] = self.levels
        column: npt.NDArray[Any] = levels[codes]
        return column

    @cached_property
    def _places(self) -> dict[Any, int]:
        return {level: place for place, level in enumerate(self.levels)}


def _levels(feature: Feature) -> tuple[str, ...] | tuple[float, ...]:
    return feature.categories if feature.kind is FeatureKind.CATEGORICAL else (0.0, 1.0)


FEW_PRODUCTS = 2**14
"""Most products in one array; with more, they would not stay in the processor's cache."""
SHRINKAGES = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.06, 0.1, 0.2, 0.35, 0.6, 1.0)
"""Weights of the identity to choose from."""
TILE_ROWS = 1024
"""Rows of a tile, which stay in the processor's cache."""


def sample_correlation(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the mean products of standardised scores ``[N, Q]``, ``[Q, Q]``, with 1 on the diagonal.

    NaN stands for a missing cell: each entry is a mean over the rows that have both cells.
    """
    present = ~np.isnan(scores)
    filled = np.where(present, scores, 0.0)
    together = present.T.astype(np.float64) @ present
    correlation = filled.T @ filled / np.maximum(together, 1.0)
    variances = np.diagonal(correlation).copy()
    scale = 1.0 / np.sqrt(np.where(variances > 0.0, variances, 1.0))
    correlation *= scale[:, None] * scale
    np.fill_diagonal(correlation, 1.0)
    if not present.all():  # means over different rows may not fit together: negative variances
        variances, vectors = np.linalg.eigh(correlation)
        if variances.size and variances[0] < 0.0:
            correlation = (vectors * np.maximum(variances, 0.0)) @ vectors.T
            scale = 1.0 / np.sqrt(np.diagonal(correlation))
            correlation *= scale[:, None] * scale
    return correlation


def shrunk(correlation: npt.NDArray[np.float64], shrinkage: float) -> npt.NDArray[np.float64]:
    """Return the mean of a correlation matrix and the identity, which has the weight ``shrinkage``."""
    return (1.0 - shrinkage) * correlation + shrinkage * np.eye(len(correlation))


def best_shrinkage(folds: Iterable[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]) -> float:
    """Return the one of `SHRINKAGES` with the largest Gaussian likelihood of held-out rows.

    Args:
        folds: Sample correlation of the other rows, ``[Q, Q]``, and scores of the held-out rows, ``[n, Q]``.
    """
    losses = np.zeros(len(SHRINKAGES))
    for correlation, held_out in folds:
        variances, vectors = np.linalg.eigh(correlation)
        # A score of 4 or more is rare among Gaussian rows: a few of them shall not decide.
        squares = np.square(np.clip(np.nan_to_num(held_out), -4.0, 4.0) @ vectors).sum(axis=0)
        for place, shrinkage in enumerate(SHRINKAGES):
            shrunk_variances = (1.0 - shrinkage) * np.maximum(variances, 0.0) + shrinkage
            losses[place] += (squares / shrunk_variances).sum() + len(held_out) * np.log(shrunk_variances).sum()
    return SHRINKAGES[int(losses.argmin())]


def row_sums(values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the product of values ``[B, Q]`` and weights ``[Q, M]``, each row independent of the others.

    The sum runs column by column: a matrix product would round a row differently in another batch.
    """
    if weights.shape[1] > 1 and values.size * weights.shape[1] <= FEW_PRODUCTS:
        # One call for few rows: a sum over the first axis also adds one column after the other.
        return np.asarray(np.add.reduce(values.T[:, :, None] * weights[:, None, :], axis=0))
    spans = [np.flatnonzero(row) for row in weights]
    sums = np.zeros((len(values), weights.shape[1]))
    for start in range(0, len(values), TILE_ROWS):
        tile = sums[start : start + TILE_ROWS]
        for column, row, span in zip(values[start : start + TILE_ROWS].T, weights, spans, strict=True):
            if span.size:
                places = slice(span[0], span[-1] + 1)
                tile[:, places] += column[:, None] * row[places]
    return sums


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
LANDMARK_TILE_ROWS = 64
"""Rows of a tile, whose distances stay in the processor's cache."""
ROUNDING = 1e-12
"""Bound on the rounding of a distance by a matrix product, relative to the squares that it adds up."""
DIGITS = 5
"""Significant digits of a landmark."""


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

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless there is a spacing for each point, and a mean and a std for each number."""
        count, columns = self.points.shape
        if len(self.spacings) != count or not count or self.spacings.min() <= 0.0:
            raise MisfitError("spacings", f"{count} numbers above 0, at least one", self.spacings.tolist())
        if not len(self.means) == len(self.stds) == columns or (self.stds <= 0.0).any():
            raise MisfitError("stds", f"{columns} means, and as many stds above 0", self.stds.tolist())

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
        for start in range(0, len(rows), LANDMARK_TILE_ROWS):
            nearest[start : start + LANDMARK_TILE_ROWS] = self._nearest(rows[start : start + LANDMARK_TILE_ROWS])
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


def _centres(rows: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """Return ``count`` centres of k-means of rows ``[N, F]``."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    centres = rows[np.sort(generator.permutation(len(rows))[:count])]
    for _ in range(ITERATIONS):
        sizes = np.square(centres).sum(axis=1)
        owners = np.concatenate(
            [
                (sizes - 2.0 * (rows[start : start + LANDMARK_TILE_ROWS] @ centres.T)).argmin(axis=1)
                for start in range(0, len(rows), LANDMARK_TILE_ROWS)
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


MOST_COLUMNS = 120
"""Most columns of the correlation matrix. Numbers go before levels. With more numbers, all count as independent."""


def _read_triangle(rows: list[list[float]] | None) -> npt.NDArray[np.float64] | None:
    if rows is None:
        return None
    if [len(row) for row in rows] != list(range(1, len(rows) + 1)):
        raise ValueError("expected the lower triangle of a matrix, row by row")
    correlation = np.zeros((len(rows), len(rows)))
    for at, row in enumerate(rows):
        correlation[at, : at + 1] = correlation[: at + 1, at] = row
    if rows and np.linalg.eigvalsh(correlation)[0] <= 0.0:
        raise ValueError("expected a positive definite matrix")
    return correlation


def _triangle(correlation: npt.NDArray[np.float64]) -> list[list[float]] | None:
    if np.array_equal(correlation, np.eye(len(correlation))):
        return None
    return [row[: at + 1].tolist() for at, row in enumerate(correlation)]


_Correlation: TypeAlias = Annotated[
    npt.NDArray[np.float64], stored_as(list[list[float]] | None, _read_triangle, _triangle)
]
"""``[Q, Q]``, positive definite; in a file its lower triangle, or null for independent columns."""


@dataclass(frozen=True)
class FeatureDistribution(Stored):
    """Scores and indicators of the features, Q columns in all, and their correlation.

    Attributes:
        numbers: Number or date → its scores: the first F columns.
        levels: Boolean or category → its levels; their indicators are the further columns.
        correlation: ``[Q, Q]``, positive definite; the identity for independent columns.
        reach: Largest ordinary distance of a row from the training rows.
        landmarks: Points amid the training rows, in the F numbers; None where rows are too few.
    """

    numbers: Mapping[str, QuantileScores]
    levels: Mapping[str, LevelShares]
    correlation: _Correlation
    reach: float
    landmarks: Landmarks | None = None

    def __post_init__(self) -> None:
        """Fill in the correlation of independent columns."""
        if self.correlation is None:
            object.__setattr__(self, "correlation", np.eye(len(self.owners)))

    def require_features(self, schema: Schema) -> None:
        """Check that the distribution is one of features of a schema.

        Raises:
            MisfitError: A feature or a size does not fit; the path begins with ``distribution``.
        """
        features = {feature.name: feature for feature in schema.features}
        others = [name for name in self.numbers if name not in features or _has_levels(features[name].kind)]
        others += [name for name, shares in self.levels.items() if not _fits(shares, features.get(name))]
        if others:
            raise MisfitError("distribution", "numbers, and levels with counts above 0, of the features", others)
        if len(self.correlation) != len(self.owners):
            expected = f"the lower triangle of {len(self.owners)} columns"
            raise MisfitError("distribution.correlation", expected, len(self.correlation))
        if self.landmarks is not None and self.landmarks.points.shape[1] != len(self.numbers):
            expected = f"points of {len(self.numbers)} numbers each"
            raise MisfitError("distribution.landmarks.points", expected, self.landmarks.points.shape)

    @cached_property
    def indicated(self) -> tuple[tuple[str, npt.NDArray[np.intp]], ...]:
        """Features with indicators among the columns, and their indicated levels."""
        indicated = []
        room = MOST_COLUMNS - len(self.numbers)
        for name, shares in self.levels.items():
            levels = shares.indicated[: max(room, 0)]
            room -= len(levels)
            if len(levels):
                indicated.append((name, levels))
        return tuple(indicated)

    @cached_property
    def owners(self) -> tuple[str, ...]:
        """The feature of each of the Q columns."""
        return (*self.numbers, *(name for name, levels in self.indicated for _ in levels))

    @cached_property
    def same_owner(self) -> npt.NDArray[np.bool_]:
        """Whether two columns have the same owner, ``[Q, Q]``."""
        return np.array([[one == other for other in self.owners] for one in self.owners], dtype=np.bool_)

    def clipped_scores(self, columns: Columns) -> npt.NDArray[np.float64]:
        """Return scores and indicators of rows with every number clipped to its training range, ``[B, Q]``.

        NaN stands for a missing cell, and for the indicators of an unseen category.
        """
        parts = [self._table.clipped(self.values(columns))]
        parts += [
            self.levels[name].indicators(self.levels[name].codes(columns[name]), levels)
            for name, levels in self.indicated
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def scores_beyond(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return what scores of numbers ``[B, F]`` beyond their training range have in addition; NaN for NaN."""
        return self._table.beyond(values)

    def clipped_values(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return numbers ``[B, F]`` clipped to their training range."""
        least, most = self._table.ends
        return np.asarray(np.minimum(np.maximum(values, least), most))

    def values(self, columns: Columns) -> npt.NDArray[np.float64]:
        """Return the numbers of rows, ``[B, F]``; NaN for a missing cell."""
        if not self.numbers:
            return np.zeros((len(next(iter(columns.values()))), 0))
        return np.stack([columns[name] for name in self.numbers], axis=1)

    @cached_property
    def _table(self) -> ScoreTable:
        return ScoreTable.of(tuple(self.numbers.values()))

    def completed(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return scores ``[B, Q]`` with the conditional mean, given the others of the row, in the place of NaN.

        With these the distance of a row is that of its known cells alone.
        """
        unknown = np.isnan(scores)
        if not unknown.any():
            return scores
        completed = scores.copy()
        rows = np.flatnonzero(unknown.any(axis=1))
        patterns, of_row = np.unique(unknown[rows], axis=0, return_inverse=True)
        for number, missing in enumerate(patterns):
            alike = rows[of_row.reshape(-1) == number]
            weights = self.regression(~missing, missing)
            completed[np.ix_(alike, np.flatnonzero(missing))] = row_sums(scores[np.ix_(alike, ~missing)], weights)
        return completed

    def regression(self, known: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the weights of known columns in the conditional mean of wanted ones, ``[known, wanted]``.

        Args:
            known: Mask or places of known columns.
            wanted: Mask or places of wanted columns.
        """
        inner = self.correlation[known][:, known]
        return np.asarray(np.linalg.solve(inner, self.correlation[known][:, wanted]), dtype=np.float64)

    def distances(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the Mahalanobis distance of rows, ``[B]``, from complete scores ``[B, Q]``."""
        return np.asarray(np.sqrt(np.square(row_sums(scores, self._whitening)).sum(axis=1)))

    @cached_property
    def precision(self) -> npt.NDArray[np.float64]:
        """The inverse of the correlation, ``[Q, Q]``; its first F rows and columns are P."""
        return np.asarray(np.linalg.inv(self.correlation), dtype=np.float64)

    @cached_property
    def _whitening(self) -> npt.NDArray[np.float64]:
        """Weights of the columns in F independent numbers of unit variance, ``[Q, F]``: triangular for the numbers."""
        count = len(self.numbers)
        factor = np.linalg.cholesky(self.precision[:count, :count])
        # P z + P_zc c = P (z - E[z given c]), so the levels' weights are P_cz L^-T.
        of_levels = np.linalg.solve(factor, self.precision[:count, count:]).T
        return np.concatenate([factor, of_levels])


def marginals(schema: Schema, columns: Columns) -> tuple[dict[str, QuantileScores], dict[str, LevelShares]]:
    """Fit the scores of numbers and dates, and the levels of booleans and categories, to rows ``[N]``."""
    numbers, levels = {}, {}
    for feature in schema.features:
        column = columns[feature.name]
        if _has_levels(feature.kind):
            if (shares := LevelShares.fit(feature, column)) is not None:
                levels[feature.name] = shares
        elif (scores := QuantileScores.fit(column)) is not None:
            numbers[feature.name] = scores
    return numbers, levels


def _fits(shares: LevelShares, feature: Feature | None) -> bool:
    known = feature is not None and _has_levels(feature.kind) and shares.levels == _levels(feature)
    return known and bool(shares.counts.sum() > 0)


def _has_levels(kind: FeatureKind) -> bool:
    return kind in (FeatureKind.BOOLEAN, FeatureKind.CATEGORICAL)
