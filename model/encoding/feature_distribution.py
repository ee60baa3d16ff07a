"""The joint distribution of the features over the training rows: a Gaussian copula.

Each number or date has normal scores, each boolean or category indicators of its frequent levels. One correlation
matrix joins them.
A checkpoint stores these and the landmarks, of which one may be a training row where rows are few. Two things follow:

- the distance of a row from the training rows, and the features that make it far (`model.encoding.outliers`);
- what a missing cell may have been, given the row's other cells (`model.encoding.imputation`).

The normal score of a value is the standard normal quantile of its rank among the training rows. A column of any shape
becomes about Gaussian in this way. Beyond the training range the score goes on linearly, in standard deviations of
the column: a value that lies far out in the column's own unit has a score far out, also for a uniform column. A boolean
or a category has an indicator for each of its frequent levels but one.

The distance is the larger one of two. One is the Mahalanobis distance of the scores of numbers and dates, given the
row's levels: ``d^2 = r' P r`` with ``r = z - E[z given levels]`` and P the inverse of the covariance of z given the
levels. The other one is that to the nearest training rows (`model.encoding.landmarks`). A level is never far by
itself: an unseen one has its own warning. The limit of ordinary distances, `FeatureDistribution.reach`, comes
from rows that the distribution was not fitted to (`model.encoding.distribution_fit`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any, Self

import numpy as np
import torch

from murho.model.arrays import Array, Bools, Doubles, Ints, Places, group_equal
from murho.model.encoding.feature_encodings import Scale
from murho.model.encoding.landmarks import Landmarks
from murho.model.json_validation import Counts, Matrix, Positive, Stored, Vector
from murho.model.tables.schema import Columns, Feature, FeatureKind, count_rows

MOST_KNOTS = 41
"""Most knots of a feature: the extremes and ranks that are evenly spaced in normal scores between them. A feature with
fewer distinct values has a knot at each of them, and its quantile function is a staircase."""
OUTERMOST = 2.8
"""Normal score of the outermost knots but the extremes."""


def normal_quantile(probabilities: Doubles) -> Doubles:
    """Return standard normal quantiles."""
    return np.asarray(torch.special.ndtri(torch.from_numpy(probabilities)))


def normal_cdf(scores: Doubles) -> Doubles:
    """Return standard normal probabilities."""
    return np.asarray(torch.special.ndtr(torch.from_numpy(scores)))


@dataclass(frozen=True)
class QuantileScores(Stored):
    """The empirical distribution of one number or date over the training rows.

    Attributes:
        values: Knots, increasing, ``[K]``; the first and the last are the extremes of the training rows.
        below: Number of training rows with a smaller value than each knot, ``[K]``.
        upto: Number of training rows with a value up to each knot, ``[K]``.
        std: Standard deviation of the feature over the training rows.
        centre: Mean of the normal scores of the training rows, before standardisation.
        spread: Their standard deviation: below 1 for a feature with few distinct values.
    """

    values: Vector
    below: Counts
    upto: Counts
    std: Positive
    centre: float = 0.0
    spread: Positive = 1.0

    @classmethod
    def fit(cls, column: Doubles) -> Self | None:
        """Fit to the column ``[N]`` of the training rows; NaN is ignored. None if there is no value."""
        present = np.sort(column[~np.isnan(column)])
        if not present.size:
            return None
        knots = np.unique(present)
        if knots.size > MOST_KNOTS:
            scores = np.linspace(-OUTERMOST, OUTERMOST, MOST_KNOTS - 2)
            ranks = np.floor(normal_cdf(scores) * present.size).astype(np.int64)
            knots = np.unique(present[np.concatenate([[0], ranks, [present.size - 1]])])
        below, upto = (np.searchsorted(present, knots, side=side) for side in ("left", "right"))
        raw = cls(knots, below, upto, Scale.fit(column).std)
        scores = np.interp(present, raw.values, raw.knot_scores)
        return replace(raw, centre=float(scores.mean()), spread=float(scores.std()) or 1.0)

    @cached_property
    def knot_scores(self) -> Doubles:
        """Standardised normal scores of the knots, ``[K]``: of the middle rank where several rows share a value.

        The scores of other values are a polygon through these.
        """
        middle = normal_quantile((self.below + self.upto) / (2.0 * self.upto[-1]))
        return np.asarray((middle - self.centre) / self.spread)

    def at(self, scores: Doubles) -> Doubles:
        """Return the values with given normal scores of unit variance, any shape, within the training range."""
        return np.interp(normal_cdf(scores), self._probabilities, np.repeat(self.values, 2))

    @cached_property
    def _probabilities(self) -> Doubles:
        """Probabilities of a value below, and up to, each knot, ``[2 K]``."""
        return np.asarray(np.stack([self.below, self.upto], axis=1).ravel() / self.upto[-1])


LEAST_SHARE = 0.05
"""Least share of a level with an indicator. A rarer one would have a standardised indicator far from Gaussian."""


def levels_of(feature: Feature) -> tuple[Any, ...] | None:
    """Return the categories of a feature, or 0 and 1 of a boolean; None for numbers and dates."""
    if feature.kind in (FeatureKind.NUMERIC, FeatureKind.DATE):
        return None
    return feature.categories if feature.kind is FeatureKind.CATEGORICAL else (0.0, 1.0)


@dataclass(frozen=True)
class LevelShares(Stored):
    """Counts of the levels of a feature over the training rows.

    Attributes:
        levels: The categories of the feature, or 0 and 1.
        counts: Number of training rows with each level, ``[L]``.
    """

    levels: tuple[str, ...] | tuple[float, ...]
    counts: Counts

    @classmethod
    def fit(cls, feature: Feature, column: Array) -> Self | None:
        """Count the levels of the column ``[N]`` of the training rows; None if all cells are missing."""
        levels, rows = levels_of(feature) or (), Counter(column.tolist())
        counts = np.array([rows[level] for level in levels], dtype=np.int64)
        return cls(levels, counts) if counts.any() else None

    @cached_property
    def shares(self) -> Doubles:
        """Share of each level among the training rows with a value, ``[L]``."""
        return np.asarray(self.counts / self.counts.sum())

    @cached_property
    def indicated(self) -> Places:
        """The levels with an indicator, the most frequent first: all with `LEAST_SHARE` but the most frequent one."""
        order = np.argsort(-self.counts, kind="stable")[1:]
        return order[self.shares[order] >= LEAST_SHARE]

    def indicators(self, codes: Ints, levels: Places) -> Doubles:
        """Return standardised indicators of some levels, ``[..., len(levels)]``; NaN where the code is -1.

        Args:
            codes: Levels of rows, any shape.
            levels: The levels that are indicated.
        """
        shares = self.shares[levels]
        standardised = ((codes[..., None] == levels) - shares) / np.sqrt(shares * (1.0 - shares))
        return np.where(codes[..., None] < 0, np.nan, standardised)

    def column(self, codes: Ints) -> Array:
        """Return the canonical column of levels, in the shape of the codes."""
        return np.array(self.levels, dtype=object if isinstance(self.levels[0], str) else np.float64)[codes]

    @cached_property
    def places(self) -> dict[Any, int]:
        """Number of each level."""
        return {level: place for place, level in enumerate(self.levels)}


MOST_COLUMNS = 120
"""Most columns of the correlation matrix. Numbers go before levels. With more numbers, all count as independent."""


@dataclass(frozen=True)
class FeatureDistribution(Stored):
    """Scores and indicators of the features, Q columns in all, and their correlation.

    Attributes:
        numbers: Number or date → its scores: the first F columns.
        levels: Boolean or category → its levels; their indicators are the further columns.
        correlation: ``[Q, Q]``, positive definite; None for independent columns.
        reach: Limit of the distance of ordinary rows from the training rows.
        landmarks: Points amid the training rows, in the F numbers; None where rows are too few.
    """

    numbers: Mapping[str, QuantileScores]
    levels: Mapping[str, LevelShares]
    correlation: Matrix | None
    reach: float
    landmarks: Landmarks | None = None

    @cached_property
    def indicated(self) -> tuple[tuple[str, Places], ...]:
        """Features with indicators among the columns, and their indicated levels."""
        indicated, room = [], MOST_COLUMNS - len(self.numbers)
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
    def joint(self) -> Doubles:
        """The correlation, ``[Q, Q]``; the identity for independent columns."""
        return np.eye(len(self.owners)) if self.correlation is None else self.correlation

    def values(self, columns: Columns) -> Doubles:
        """Return the numbers of rows, ``[B, F]``; NaN for a missing cell."""
        if not self.numbers:
            return np.zeros((count_rows(columns), 0))
        return np.stack([*map(columns.__getitem__, self.numbers)], axis=1)

    @cached_property
    def ends(self) -> Doubles:
        """Smallest and largest training value of each number, and its distance for a score of 1, ``[3, F]``."""
        ends = [(each.values[0], each.values[-1], each.std * each.spread) for each in self.numbers.values()]
        return np.array(ends, dtype=np.float64).reshape(-1, 3).T

    def scores(self, columns: Columns) -> Doubles:
        """Return scores and indicators of rows with every number clipped to its training range, ``[B, Q]``.

        NaN stands for a missing cell, and for the indicators of an unseen category.
        """
        scores = np.empty((count_rows(columns), len(self.owners)))
        for place, (name, number) in enumerate(self.numbers.items()):
            scores[:, place] = np.interp(columns[name], number.values, number.knot_scores)
        place = len(self.numbers)
        for name, levels in self.indicated:
            shares = self.levels[name]
            codes = np.fromiter(map(shares.places.get, columns[name].tolist(), repeat(-1)), np.int64, len(scores))
            scores[:, place : place + len(levels)] = shares.indicators(codes, levels)  # -1: missing, or unseen
            place += len(levels)
        return scores

    def complete(self, scores: Doubles) -> Doubles:
        """Return scores ``[B, Q]`` with the conditional mean, given the others of the row, in the place of NaN.

        With these the distance of a row is that of its known cells alone.
        """
        unknown = np.isnan(scores)
        if not unknown.any():
            return scores
        completed = scores.copy()
        for missing, rows in group_equal(unknown):
            weights, _ = self.conditional(~missing, missing)
            completed[np.ix_(rows, missing)] = scores[np.ix_(rows, ~missing)] @ weights
        return completed

    def conditional(self, known: Bools, wanted: Bools) -> tuple[Doubles, Doubles]:
        """Return the distribution of wanted columns given known ones.

        Args:
            known: Mask of the known columns, ``[Q]``.
            wanted: Mask of the wanted ones.

        Returns:
            Weights of the known columns in the conditional means, ``[known, wanted]``, and the conditional covariance.
        """
        together = self.joint[np.ix_(known, wanted)]
        weights = np.asarray(np.linalg.solve(self.joint[np.ix_(known, known)], together), dtype=np.float64)
        return weights, self.joint[np.ix_(wanted, wanted)] - together.T @ weights

    def mahalanobis(self, scores: Doubles) -> Doubles:
        """Return the Mahalanobis distance of rows, ``[B]``, from complete scores ``[B, Q]``."""
        whitened = scores @ self._whitening
        return np.asarray(np.sqrt(np.einsum("bf,bf->b", whitened, whitened)))

    @cached_property
    def precision(self) -> Doubles:
        """The inverse of the correlation, ``[Q, Q]``; its first F rows and columns are P."""
        return np.asarray(np.linalg.inv(self.joint), dtype=np.float64)

    @cached_property
    def _whitening(self) -> Doubles:
        """Weights of the columns in F independent numbers of unit variance, ``[Q, F]``.

        With P = L L': P z + P_zc c = P (z - E[z given c]), so they are the transpose of ``L^-1 [P, P_zc]``.
        """
        of_numbers = self.precision[: len(self.numbers)]
        return np.linalg.solve(np.linalg.cholesky(of_numbers[:, : len(self.numbers)]), of_numbers).T
