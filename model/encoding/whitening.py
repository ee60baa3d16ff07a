"""Whitening: directions in which correlated numbers hardly vary, as inputs of unit variance.

The difference of two sensors that rise and fall together is hard to learn: standardised, it is a hundredth of either
sensor, and a network takes very many steps to grow weights that use it. Whitening ("sphering") makes such a difference
an input of unit variance: the principal components of least variance, each divided by its standard deviation (LeCun,
Bottou, Orr and Mueller 1998, "Efficient BackProp", section 4.3).

If the numbers of a row break the pattern of all training rows, such a direction lies far out, although each number is
ordinary by itself. So each direction is clipped to its training range. A second input is its distance beyond that
range, zero within it, like the inputs of `model.encoding.continuation`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from murho.model.encoding.transforms import FURTHEST, Scale, Scaled
from murho.model.json_validation import Matrix, MisfitError, Stored, Vector
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from murho.model.encoding.transforms import FeatureEncoding
    from murho.model.tables.schema import Columns, Schema

__all__ = [
    "Whitening",
]

HIDDEN_VARIANCE = 0.1
"""A direction with less variance is hidden; a standardised number has variance 1."""
LEAST_VARIANCE = 1e-8
"""Share of the largest variance. A direction with less is rounding error, of a column that others determine."""
ROWS_A_NUMBER = 10
"""Least number of training rows per numeric feature: with fewer, chance alone makes variances small."""
MOST_DIRECTIONS = 64
"""Largest number of directions: those of least variance, which a fit learns last."""

_TILE = 16_384


@dataclass(frozen=True)
class Whitening(Stored):
    """Principal components of small variance of the standardised numbers, scaled to unit variance.

    A missing cell counts as the mean of its column.

    Attributes:
        features: Names of the F numeric features.
        scales: Standardisation of each feature.
        axes: Weights of the features in K directions, ``[F, K]``; standardised numbers times axes have unit variance.
        minima: Smallest value of each direction over the training rows, ``[K]``.
        maxima: Largest value of each, ``[K]``.
    """

    features: tuple[str, ...]
    scales: tuple[Scale, ...]
    axes: Matrix
    minima: Vector
    maxima: Vector

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless each feature has a scale and weights, and each direction a range."""
        if not self.axes.shape == (len(self.features), len(self.minima)) or len(self.scales) != len(self.features):
            raise MisfitError("axes", "a scale and a list a feature, with as many numbers as minima", self.axes.shape)
        if len(self.minima) != len(self.maxima) or (self.minima > self.maxima).any():
            raise MisfitError("minima", "as many numbers as maxima, up to these", self.minima.tolist())

    @classmethod
    def fit(cls, schema: Schema, parts: Sequence[FeatureEncoding], columns: Columns) -> Self | None:
        """Find the hidden directions of the training rows.

        Args:
            schema: The features.
            parts: Encodings of the features, which standardise the numbers.
            columns: Canonical columns of the training rows, ``[N]`` each.

        Returns:
            The whitening, or None if no direction is hidden or the rows are too few.
        """
        features, scales = _numbers(schema, parts)
        rows = len(columns[features[0]]) if features else 0
        if len(features) < 2 or rows < ROWS_A_NUMBER * len(features):
            return None
        empty = cls(features, scales, np.empty((len(features), 0)), np.empty(0), np.empty(0))
        second_moments = np.zeros((len(features), len(features)))
        for start in range(0, rows, _TILE):
            numbers = empty._standardised(columns, slice(start, start + _TILE))
            second_moments += numbers.T @ numbers / rows
        variances, vectors = np.linalg.eigh(second_moments)
        hidden = (variances < HIDDEN_VARIANCE) & (variances > LEAST_VARIANCE * variances[-1])
        if not hidden.any():
            return None
        chosen = np.flatnonzero(hidden)[:MOST_DIRECTIONS]
        axes = vectors[:, chosen] / np.sqrt(variances[chosen])
        # The sign of an eigenvector is arbitrary: its largest number is made positive.
        largest = np.abs(axes).argmax(axis=0)
        axes *= np.sign(axes[largest, np.arange(axes.shape[1])])
        none = np.zeros(len(chosen))
        unbounded = replace(empty, axes=axes, minima=none, maxima=none)
        tiles = [unbounded._directions(columns, slice(at, at + _TILE)) for at in range(0, rows, _TILE)]
        minima = np.min([tile.min(axis=0) for tile in tiles], axis=0)
        maxima = np.max([tile.max(axis=0) for tile in tiles], axis=0)
        return replace(unbounded, minima=minima, maxima=maxima)

    @property
    def count(self) -> int:
        """Number of directions, K."""
        return len(self.axes.T)

    @property
    def variances(self) -> npt.NDArray[np.float64]:
        """Variances of the directions before scaling, ``[K]``; a standardised number has variance 1."""
        return np.asarray(1.0 / np.square(self.axes).sum(axis=0))

    @property
    def names(self) -> tuple[str, ...]:
        """Names such as ``hidden direction 1``."""
        return tuple(f"hidden direction {number}" for number in range(1, self.count + 1))

    def training_range(self) -> npt.NDArray[np.float64]:
        """Return the smallest and largest values of both outputs of `encode` over the training rows, ``[2, 2 K]``."""
        ends = np.stack([self.minima, self.maxima])
        clipped = self._clipped(ends)
        return np.concatenate([clipped, ends - clipped], axis=1)

    def encode(
        self, columns: Columns, rows: slice | npt.NDArray[np.intp]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Whiten rows, each independently of the others.

        Args:
            columns: Canonical columns.
            rows: The B rows to whiten: a slice, or their indices.

        Returns:
            The directions, clipped to the range of the training rows and to ± `model.encoding.transforms.FURTHEST`
            standard deviations, ``[B, K]``; and their distances beyond, ``[B, K]``.
        """
        directions = self._directions(columns, rows)
        clipped = self._clipped(directions)
        with np.errstate(invalid="ignore"):
            return clipped, np.nan_to_num(directions - clipped, nan=0.0, posinf=np.inf, neginf=-np.inf)

    @cached_property
    def _standards(self) -> npt.NDArray[np.float64]:
        """Means, standard deviations and limits of the numbers, ``[3, F]``."""
        return np.array([(scale.mean, scale.std, scale.limit) for scale in self.scales]).T

    def _standardised(self, columns: Columns, rows: slice | npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Return the standardised numbers, ``[B, F]``; 0 for a missing cell."""
        means, stds, limits = self._standards
        numbers: npt.NDArray[np.float64] = np.stack([columns[name][rows] for name in self.features], axis=1)
        with np.errstate(over="ignore"):
            numbers = np.clip((numbers - means) / stds, -limits, limits)
        numbers[np.isnan(numbers)] = 0.0
        return numbers

    def _directions(self, columns: Columns, rows: slice | npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Return the directions, ``[B, K]``, not clipped.

        The sum runs feature by feature: a matrix product would round a row differently in another batch.
        """
        numbers = self._standardised(columns, rows)
        directions = np.zeros((len(numbers), self.count))
        with np.errstate(invalid="ignore", over="ignore"):
            for number, axis in zip(numbers.T, self.axes, strict=True):
                directions += number[:, None] * axis
        return directions

    def _clipped(self, directions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the directions clipped to their range; 0 where infinite numbers cancel."""
        least, most = np.maximum(self.minima, -FURTHEST), np.minimum(self.maxima, FURTHEST)
        return np.clip(np.nan_to_num(directions, nan=0.0, posinf=np.inf, neginf=-np.inf), least, most)


def _numbers(schema: Schema, parts: Sequence[FeatureEncoding]) -> tuple[tuple[str, ...], tuple[Scale, ...]]:
    """Return names and scales of the numeric features."""
    numeric = [
        (feature.name, part.scale)
        for feature, part in zip(schema.features, parts, strict=True)
        if feature.kind is FeatureKind.NUMERIC and isinstance(part, Scaled)
    ]
    return tuple(name for name, _ in numeric), tuple(scale for _, scale in numeric)
