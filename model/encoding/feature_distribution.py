"""The joint distribution of the features over the training rows: a Gaussian copula.

Each number or date has normal scores (`model.encoding.quantile_scores`), each boolean or category indicators of its
frequent levels (`model.encoding.level_shares`). One correlation matrix joins them (`model.encoding.score_correlation`).
A checkpoint stores these and the landmarks, of which one may be a training row where rows are few. Two things follow:

- the distance of a row from the training rows, and the features that make it far (`model.encoding.row_distance`);
- what a missing cell may have been, given the row's other cells (`model.encoding.imputation`).

The distance is the larger one of two. One is the Mahalanobis distance of the scores of numbers and dates, given the
row's levels: ``d^2 = r' P r`` with ``r = z - E[z given levels]`` and P the inverse of the covariance of z given the
levels. The other one is that to the nearest training rows (`model.encoding.landmarks`). A level is never far by itself:
an unseen one has its own warning. The limit of ordinary distances, `FeatureDistribution.reach`, comes from rows that
the distribution was not fitted to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.data.schema import FeatureKind
from murho.model.encoding.landmarks import Landmarks
from murho.model.encoding.level_shares import LevelShares
from murho.model.encoding.quantile_scores import QuantileScores
from murho.model.encoding.score_correlation import row_sums
from murho.model.encoding.score_table import ScoreTable
from murho.model.json_validation import expect_fields, expect_list, expect_number, expect_numbers, expect_object, wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from murho.model.data.schema import Columns, Schema

__all__ = ["MOST_COLUMNS", "FeatureDistribution", "marginals"]

MOST_COLUMNS = 120
"""Most columns of the correlation matrix. Numbers go before levels. With more numbers, all count as independent."""


@dataclass(frozen=True)
class FeatureDistribution:
    """Scores and indicators of the features, Q columns in all, and their correlation.

    Attributes:
        numbers: Number or date → its scores: the first F columns.
        levels: Boolean or category → its levels; their indicators are the further columns.
        correlation: ``[Q, Q]``, positive definite; the identity for independent columns.
        reach: Largest ordinary distance of a row from the training rows.
        landmarks: Points amid the training rows, in the F numbers; None where rows are too few
            checkpoints.
    """

    numbers: Mapping[str, QuantileScores]
    levels: Mapping[str, LevelShares]
    correlation: npt.NDArray[np.float64]
    reach: float
    landmarks: Landmarks | None = None

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

    def to_json(self) -> dict[str, Any]:
        """Return the distribution as JSON data, with the lower triangle of the correlation."""
        landmarks = {} if self.landmarks is None else {"landmarks": self.landmarks.to_json()}
        independent = np.array_equal(self.correlation, np.eye(len(self.correlation)))
        return {
            "numbers": {name: scores.to_json() for name, scores in self.numbers.items()},
            "levels": {name: shares.to_json() for name, shares in self.levels.items()},
            "correlation": None if independent else [row[: at + 1].tolist() for at, row in enumerate(self.correlation)],
            "reach": self.reach,
            **landmarks,
        }

    @classmethod
    def from_json(cls, data: object, schema: Schema, where: str) -> Self:
        """Read what `to_json` returned.

        Raises:
            CheckpointError: The data don't fit; the message names the field, which begins with ``where``.
        """
        fields = expect_fields(data, where, ("numbers", "levels", "correlation", "reach"), optional=("landmarks",))
        features = {feature.name: feature for feature in schema.features}
        described = {part: expect_object(fields[part], f"{where}.{part}") for part in ("numbers", "levels")}
        for part, of_levels in (("numbers", False), ("levels", True)):
            for name in described[part]:
                if name not in features or _has_levels(features[name].kind) != of_levels:
                    raise wrong(f"{where}.{part}", "features of the schema of this kind", name)
        numbers = {
            name: QuantileScores.from_json(item, f"{where}.numbers.{name}")
            for name, item in described["numbers"].items()
        }
        levels = {
            name: LevelShares.from_json(features[name], item, f"{where}.levels.{name}")
            for name, item in described["levels"].items()
        }
        empty = cls(numbers, levels, np.zeros((0, 0)), expect_number(fields["reach"], f"{where}.reach"))
        landmarks = None
        if "landmarks" in fields:
            landmarks = Landmarks.from_json(fields["landmarks"], len(numbers), f"{where}.landmarks")
        correlation = _correlation(fields["correlation"], len(empty.owners), where)
        return cls(numbers, levels, correlation, empty.reach, landmarks)


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


def _has_levels(kind: FeatureKind) -> bool:
    return kind in (FeatureKind.BOOLEAN, FeatureKind.CATEGORICAL)


def _correlation(data: object, count: int, where: str) -> npt.NDArray[np.float64]:
    if data is None:
        return np.eye(count)
    where = f"{where}.correlation"
    rows = [expect_numbers(row, where) for row in expect_list(data, where)]
    if [len(row) for row in rows] != list(range(1, count + 1)):
        raise wrong(where, f"the lower triangle of {count} columns", [len(row) for row in rows])
    correlation = np.zeros((count, count))
    for at, row in enumerate(rows):
        correlation[at, : at + 1] = correlation[: at + 1, at] = row
    if count and np.linalg.eigvalsh(correlation)[0] <= 0.0:
        raise wrong(where, "a positive definite matrix", data)
    return correlation
