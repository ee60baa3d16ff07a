"""The joint distribution of the features over the training rows: a Gaussian copula.

Each number or date has normal scores (`model.encoding.quantile_scores`), each boolean or category indicators of its
frequent levels. One correlation matrix joins them.
A checkpoint stores these and the landmarks, of which one may be a training row where rows are few. Two things follow:

- the distance of a row from the training rows, and the features that make it far (`model.encoding.unlike`);
- what a missing cell may have been, given the row's other cells (`model.encoding.imputation`).

The distance is the larger one of two. One is the Mahalanobis distance of the scores of numbers and dates, given the
row's levels: ``d^2 = r' P r`` with ``r = z - E[z given levels]`` and P the inverse of the covariance of z given the
levels. The other one is that to the nearest training rows (`model.encoding.landmarks`). A level is never far by itself:
an unseen one has its own warning. The limit of ordinary distances, `FeatureDistribution.reach`, comes from rows that
the distribution was not fitted to (`model.encoding.distribution_fit`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.encoding.landmarks import Landmarks
from murho.model.encoding.quantile_scores import QuantileScores
from murho.model.json_validation import Counts, Matrix, Stored
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from murho.model.tables.schema import Columns, Feature

__all__ = [
    "MOST_COLUMNS",
    "FeatureDistribution",
    "LevelShares",
    "alike",
    "levels_of",
]


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
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self | None:
        """Count the levels of the column ``[N]`` of the training rows; None if all cells are missing."""
        levels, rows = levels_of(feature) or (), Counter(column.tolist())
        counts = np.array([rows[level] for level in levels], dtype=np.int64)
        return cls(levels, counts) if counts.any() else None

    def codes(self, column: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the level of each cell of ``[B]``, -1 for missing cells and unseen categories."""
        return np.fromiter(map(self._places.get, column.tolist(), repeat(-1)), dtype=np.int64, count=len(column))

    @cached_property
    def shares(self) -> npt.NDArray[np.float64]:
        """Share of each level among the training rows with a value, ``[L]``."""
        return np.asarray(self.counts / self.counts.sum())

    @cached_property
    def indicated(self) -> npt.NDArray[np.intp]:
        """The levels with an indicator, the most frequent first: all with `LEAST_SHARE` but the most frequent one."""
        order = np.argsort(-self.counts, kind="stable")[1:]
        return order[self.shares[order] >= LEAST_SHARE]

    def indicators(self, codes: npt.NDArray[np.int64], levels: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Return standardised indicators of some levels, ``[..., len(levels)]``; NaN where the code is -1.

        Args:
            codes: Levels of rows, any shape.
            levels: The levels that are indicated.
        """
        shares = self.shares[levels]
        standardised = ((codes[..., None] == levels) - shares) / np.sqrt(shares * (1.0 - shares))
        return np.where(codes[..., None] < 0, np.nan, standardised)

    def column(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the canonical column of levels, in the shape of the codes."""
        return np.array(self.levels, dtype=object if isinstance(self.levels[0], str) else np.float64)[codes]

    @cached_property
    def _places(self) -> dict[Any, int]:
        return {level: place for place, level in enumerate(self.levels)}


MOST_COLUMNS = 120
"""Most columns of the correlation matrix. Numbers go before levels. With more numbers, all count as independent."""
FURTHEST_SCORE = 1e6
"""Scores are clipped at ± this number, so that their squares stay finite."""


@dataclass(frozen=True)
class FeatureDistribution(Stored):
    """Scores and indicators of the features, Q columns in all, and their correlation.

    Attributes:
        numbers: Number or date → its scores: the first F columns.
        levels: Boolean or category → its levels; their indicators are the further columns.
        correlation: ``[Q, Q]``, positive definite; None for independent columns.
        reach: Largest ordinary distance of a row from the training rows.
        landmarks: Points amid the training rows, in the F numbers; None where rows are too few.
    """

    numbers: Mapping[str, QuantileScores]
    levels: Mapping[str, LevelShares]
    correlation: Matrix | None
    reach: float
    landmarks: Landmarks | None = None

    @cached_property
    def indicated(self) -> tuple[tuple[str, npt.NDArray[np.intp]], ...]:
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
    def joint(self) -> npt.NDArray[np.float64]:
        """The correlation, ``[Q, Q]``; the identity for independent columns."""
        return np.eye(len(self.owners)) if self.correlation is None else self.correlation

    def values(self, columns: Columns) -> npt.NDArray[np.float64]:
        """Return the numbers of rows, ``[B, F]``; NaN for a missing cell."""
        if not self.numbers:
            return np.zeros((len(next(iter(columns.values()))), 0))
        return np.stack([columns[name] for name in self.numbers], axis=1)

    def clipped(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return numbers ``[B, F]`` clipped to their training range."""
        return np.asarray(np.minimum(np.maximum(values, self._ends[0]), self._ends[1]))

    @cached_property
    def _ends(self) -> npt.NDArray[np.float64]:
        """Smallest and largest training value of each number, and its distance for a score of 1, ``[3, F]``."""
        ends = [(each.values[0], each.values[-1], each.std * each.spread) for each in self.numbers.values()]
        return np.array(ends, dtype=np.float64).reshape(-1, 3).T

    def scores(self, columns: Columns) -> npt.NDArray[np.float64]:
        """Return scores and indicators of rows with every number clipped to its training range, ``[B, Q]``.

        NaN stands for a missing cell, and for the indicators of an unseen category.
        """
        scores = np.empty((len(next(iter(columns.values()))), len(self.owners)))
        for place, (name, number) in enumerate(self.numbers.items()):
            scores[:, place] = number.within(columns[name])
        place = len(self.numbers)
        for name, levels in self.indicated:
            shares = self.levels[name]
            scores[:, place : place + len(levels)] = shares.indicators(shares.codes(columns[name]), levels)
            place += len(levels)
        return scores

    def scores_beyond(self, distances: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return what distances of numbers beyond their training range ``[B, F]`` add to scores; 0 for NaN."""
        with np.errstate(over="ignore"):
            scores = distances / self._ends[2]
        return np.asarray(np.nan_to_num(np.minimum(np.maximum(scores, -FURTHEST_SCORE), FURTHEST_SCORE)))

    def completed(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return scores ``[B, Q]`` with the conditional mean, given the others of the row, in the place of NaN.

        With these the distance of a row is that of its known cells alone.
        """
        unknown = np.isnan(scores)
        if not unknown.any():
            return scores
        completed = scores.copy()
        for missing, rows in alike(unknown):
            weights, _ = self.conditional(~missing, missing)
            completed[np.ix_(rows, missing)] = scores[np.ix_(rows, ~missing)] @ weights
        return completed

    def conditional(
        self, known: npt.NDArray[np.bool_], wanted: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
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

    def mahalanobis(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the Mahalanobis distance of rows, ``[B]``, from complete scores ``[B, Q]``."""
        return np.asarray(np.sqrt(np.square(scores @ self._whitening).sum(axis=1)))

    @cached_property
    def precision(self) -> npt.NDArray[np.float64]:
        """The inverse of the correlation, ``[Q, Q]``; its first F rows and columns are P."""
        return np.asarray(np.linalg.inv(self.joint), dtype=np.float64)

    @cached_property
    def _whitening(self) -> npt.NDArray[np.float64]:
        """Weights of the columns in F independent numbers of unit variance, ``[Q, F]``.

        With P = L L': P z + P_zc c = P (z - E[z given c]), so they are the transpose of ``L^-1 [P, P_zc]``.
        """
        of_numbers = self.precision[: len(self.numbers)]
        return np.linalg.solve(np.linalg.cholesky(of_numbers[:, : len(self.numbers)]), of_numbers).T


def alike(masks: npt.NDArray[np.bool_]) -> Iterator[tuple[npt.NDArray[np.bool_], npt.NDArray[np.intp]]]:
    """Yield each row that occurs among masks ``[B, Q]``, and the numbers of the rows that are like it."""
    patterns, of_row = np.unique(masks, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        yield pattern, np.flatnonzero(of_row.reshape(-1) == number)
