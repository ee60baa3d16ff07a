"""Outliers among new rows: distances from the training rows, the network inputs made of them, and warnings.

Two things make a row unlike the training rows though each of its numbers lies within its range: its combination of
numbers, and that no training row is near (`model.encoding.landmarks`). A combination has one input of its own. Where
no training row is near, the difference from the nearest landmark counts number by number, as if each number were so far
beyond its range (`model.encoding.encoder.Ranges`): a number that matters is doubted more than one that does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from murho.model.encoding.landmarks import FURTHEST
from murho.model.tables.schema import NEAR, Columns, FeatureKind, Schema, UnfamiliarValue, is_missing, with_unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from murho.model.arrays import Bools, Doubles, Places
    from murho.model.encoding.feature_distribution import FeatureDistribution

COMBINATION = "combination beyond the training rows"
"""Name of the network's input for the combination."""


@dataclass(frozen=True)
class Distances:
    """Distances of B rows from the training rows, each measured by itself; missing cells do not count.

    Attributes:
        distribution: The distribution of the training rows.
        numbers: The rows' numbers clipped to their training range, ``[B, F]``.
        scores: Scores of the known cells, likewise, ``[B, Q]``.
        excess: Euclidean norm of what the scores of numbers beyond their range have in addition, ``[B]``.
        within: Mahalanobis distance, and distance to the nearest landmark (0 without landmarks), of the rows with
            every number clipped to its training range, ``[2, B]``.
        whole: The same of the rows as they are.
    """

    distribution: FeatureDistribution
    numbers: Doubles
    scores: Doubles
    excess: Doubles
    within: Doubles
    whole: Doubles

    @classmethod
    def of(cls, distribution: FeatureDistribution, columns: Columns) -> Self:
        """Measure rows.

        Args:
            distribution: The distribution of the training rows.
            columns: Canonical columns of the features, ``[B]`` each.
        """
        landmarks = distribution.landmarks

        def measured(scores: Doubles, values: Doubles) -> Doubles:
            combined = distribution.mahalanobis(distribution.complete(scores))
            near = np.zeros(len(values)) if landmarks is None else landmarks.distances(values)
            return np.array([combined, near])

        values, scores = distribution.values(columns), distribution.scores(columns)
        least, most, units = distribution.ends
        numbers = np.minimum(np.maximum(values, least), most)
        within = measured(scores, numbers)
        with np.errstate(over="ignore"):
            further = (values - numbers) / units
        further = np.minimum(np.maximum(further, -FURTHEST), FURTHEST)
        further[np.isnan(further)] = 0.0
        excess = np.sqrt(np.einsum("bf,bf->b", further, further))
        rows = np.flatnonzero(excess)
        whole = within.copy()
        if rows.size:
            moved = scores[rows]
            moved[:, : further.shape[1]] += further[rows]
            whole[:, rows] = measured(moved, values[rows])
        return cls(distribution, numbers, scores, excess, within, whole)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the distances of the rows of all parts, one part's after the other's."""
        numbers, scores = (np.concatenate([getattr(part, name) for part in parts]) for name in ("numbers", "scores"))
        others = (np.hstack([getattr(part, name) for part in parts]) for name in ("excess", "within", "whole"))
        return cls(parts[0].distribution, numbers, scores, *others)

    def __getitem__(self, rows: Bools | Places) -> Distances:
        """Those of some rows, as copies."""
        numbers, scores, excess = self.numbers[rows], self.scores[rows], self.excess[rows]
        return Distances(self.distribution, numbers, scores, excess, self.within[:, rows], self.whole[:, rows])

    @cached_property
    def outlier(self) -> Bools:
        """Whether each row is unlike the training rows: one of its distances exceeds the limit, ``[B]``."""
        return np.asarray(self.whole.max(axis=0) > self.distribution.reach)

    @property
    def combination(self) -> Doubles:
        """The network's input for the combination, ``[B]``: ``log(1 + excess)``, 0 for a row that is not unlike.

        The excess is the Mahalanobis distance beyond the limit, with every number clipped to its training range, and
        less what numbers are beyond, because these have inputs of their own. The logarithm keeps the input from
        growing out of proportion where columns nearly determine each other: there a small move is a long distance.
        """
        excess = np.minimum(self.within[0], self.whole[0]) - self.distribution.reach - self.excess
        return np.asarray(np.log1p(np.maximum(excess, 0.0)))

    @property
    def differences(self) -> Doubles | None:
        """Numbers of rows that no training row is near, less those of the nearest landmark, ``[B, F]``.

        In standard deviations, reduced by the limit, 0 for all other rows; None if there is no such row.
        """
        distances, landmarks = np.minimum(self.within[1], self.whole[1]), self.distribution.landmarks
        rows = np.flatnonzero(distances > self.distribution.reach)
        if landmarks is None or not rows.size:
            return None
        differences = np.zeros_like(self.numbers)
        shares = 1.0 - self.distribution.reach / distances[rows]
        differences[rows] = landmarks.differences(self.numbers[rows]) * shares[:, None]
        return differences

    def odd_combinations(self, rows: Places) -> Iterator[tuple[int, str, str | None]]:
        """Find the numbers that make the combination of rows unusual, each with the feature that it fits least.

        They are the numbers that would bring the row nearest to the training rows if they were what its other cells let
        expect. Replacing number i changes ``d^2`` by ``q_i^2 / P_ii`` with ``q = P r``
        (`model.encoding.feature_distribution`).

        Yields:
            At least once for each of ``rows``: the row, a number, and its partner, None in a table of one column.
        """
        precision, count = self.distribution.precision, len(self.distribution.numbers)
        owners = np.array(self.distribution.owners, dtype=object)
        scores = self.distribution.complete(self.scores[rows])
        for at, place in _largest(np.square(scores @ precision[:, :count]) / np.diagonal(precision)[:count]):
            pulls = np.where(owners == owners[place], -1.0, np.abs(precision[place] * scores[at]))
            partner = owners[pulls.argmax()]
            yield int(rows[at]), owners[place], partner if partner != owners[place] else None

    def far_numbers(self, rows: Places) -> Iterator[tuple[int, str, float]]:
        """Find the numbers in which rows differ most from the nearest landmark, and those that differ half as much.

        Yields:
            At least once for each of ``rows``: the row, a number, and the landmark's value.
        """
        landmarks, numbers = self.distribution.landmarks, self.numbers[rows]
        if landmarks is None or not rows.size:
            return
        differences, names = landmarks.differences(numbers), tuple(self.distribution.numbers)
        sizes, nearest = np.abs(differences), numbers - differences * landmarks.stds
        for at, place in _largest(sizes):
            yield int(rows[at]), names[place], float(nearest[at, place])


def _largest(sizes: Doubles) -> list[list[int]]:
    """Row and place of the largest of the sizes ``[n, F]`` of each row, and of those at least half as large."""
    return np.argwhere(sizes >= 0.5 * sizes.max(axis=1, keepdims=True, initial=0.0)).tolist()


def unfamiliar_values(distances: Distances | None, schema: Schema, columns: Columns) -> list[UnfamiliarValue]:
    """List unseen categories, missing cells that are imputed, and what makes rows unlike the training rows.

    Numbers far outside their training range are listed, and of an unlike row all that are outside. If the row would be
    unlike without these too, the features are listed whose combination with the others makes it so. Where each
    combination is ordinary, but no training row is near, the numbers are listed that differ most from the nearest ones.
    Without a distribution of the features, all values outside the training range are listed.

    Args:
        distances: The distances of the rows; None without a distribution of the features.
        schema: The features.
        columns: The features' canonical columns of the rows, ``[B]`` each.

    Returns:
        One entry per cell, sorted by row, then by feature in schema order.
    """
    features = {feature.name: feature for feature in schema.features}
    messages: dict[tuple[int, str], str] = {}
    for value in schema.outside(columns):
        feature, row = features[value.feature], value.row
        named = distances is None or distances.outlier[row] or feature.kind is FeatureKind.CATEGORICAL
        if named or feature.outside(columns[feature.name][row : row + 1], NEAR).any():
            messages[row, feature.name] = value.message
    for row in schema.incomplete(columns).tolist():
        for name, feature in features.items():
            if feature.imputed and is_missing(columns[name][row : row + 1]):
                messages[row, name] = _MISSING
    if distances is not None:
        odd, far = distances.outlier.copy(), distances.within > distances.distribution.reach
        # A row that has a message already needs no other, unless it would be unlike in any case.
        said = [row for row, _ in messages]
        odd[said] &= far[:, said].any(axis=0)
        for row, name, nearest in distances.far_numbers(np.flatnonzero(odd & ~far[0] & far[1])):
            about = round(nearest) if features[name].kind is FeatureKind.DATE else float(f"{nearest:.4g}")
            messages.setdefault((row, name), f"{_FAR} {with_unit(features[name], about)}")
        for row, name, partner in distances.odd_combinations(np.flatnonzero(odd & (far[0] | ~far[1]))):
            message = f"its combination with {partner!r} is unlike the training rows"
            messages.setdefault((row, name), "the value is unlike the training rows" if partner is None else message)
    places = {name: place for place, name in enumerate(features)}
    return [
        UnfamiliarValue(row, name, messages[row, name])
        for row, name in sorted(messages, key=lambda cell: (cell[0], places[cell[1]]))
    ]


_MISSING = "the cell is missing; no training row lacked it: the answer averages over what it may have been"
_FAR = "the row is far from every training row; the nearest ones have about"
