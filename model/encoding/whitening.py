"""Whitening: directions in which correlated numbers hardly vary, as inputs of unit variance.

The difference of two sensors that rise and fall together is hard to learn: standardised, it is a hundredth of either
sensor, and a network takes very many steps to grow weights that use it. Whitening ("sphering") makes such a difference
an input of unit variance: the principal components of least variance, each divided by its standard deviation (LeCun,
Bottou, Orr and Mueller 1998, "Efficient BackProp", section 4.3).

If the numbers of a row break the pattern of all training rows, such a direction lies far out, although each number is
ordinary by itself. So each direction is clipped to its training range. A second input is its distance beyond that
range, zero within it, like the inputs of `model.encoding.encoder.Ranges`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from murho.model.arrays import Doubles
from murho.model.encoding.feature_encodings import FURTHEST, LARGEST, FeatureEncoding, Scale, Scaled
from murho.model.json_validation import Matrix, Stored, Vector
from murho.model.tables.schema import Columns, FeatureKind, count_rows

HIDDEN_VARIANCE = 0.1
"""A direction with less variance is hidden; a standardised number has variance 1."""
LEAST_VARIANCE = 1e-8
"""Share of the largest variance. A direction with less is rounding error, of a column that others determine."""
ROWS_A_NUMBER = 10
"""Least number of training rows per numeric feature: with fewer, chance alone makes variances small."""
MOST_DIRECTIONS = 64
"""Largest number of directions: those of least variance, which a fit learns last."""


@dataclass(frozen=True)
class Whitening(Stored):
    """Principal components of small variance of the standardised numbers, scaled to unit variance.

    A missing cell counts as the mean of its column.

    Attributes:
        scales: Standardisation of each of the F numeric features.
        axes: Weights of the features in K directions, ``[F, K]``; standardised numbers times axes have unit variance.
        minima: Smallest value of each direction over the training rows, ``[K]``.
        maxima: Largest value of each, ``[K]``.
    """

    scales: Mapping[str, Scale]
    axes: Matrix
    minima: Vector
    maxima: Vector

    @classmethod
    def fit(cls, parts: Sequence[FeatureEncoding], columns: Columns) -> Self | None:
        """Find the hidden directions of the training rows.

        Args:
            parts: Encodings of the features, which standardise the numbers.
            columns: Canonical columns of the training rows, ``[N]`` each.

        Returns:
            The whitening, or None if no direction is hidden or the rows are too few.
        """
        numeric = (part for part in parts if part.feature.kind is FeatureKind.NUMERIC)
        scales = {part.feature.name: part.scale for part in numeric if isinstance(part, Scaled)}
        rows = count_rows(columns)
        if len(scales) < 2 or rows < ROWS_A_NUMBER * len(scales):
            return None
        numbers = _standardise(scales, columns)
        variances, vectors = np.linalg.eigh(numbers.T @ numbers / rows)
        hidden = (variances < HIDDEN_VARIANCE) & (variances > LEAST_VARIANCE * variances[-1])
        if not hidden.any():
            return None
        chosen = np.flatnonzero(hidden)[:MOST_DIRECTIONS]
        axes = vectors[:, chosen] / np.sqrt(variances[chosen])
        # The sign of an eigenvector is arbitrary: its largest number is made positive.
        axes *= np.sign(np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0))
        directions = _directions(numbers, axes)
        return cls(scales, axes, directions.min(axis=0), directions.max(axis=0))

    @property
    def variances(self) -> Doubles:
        """Variances of the directions before scaling, ``[K]``; a standardised number has variance 1."""
        return np.asarray(1.0 / np.square(self.axes).sum(axis=0))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the directions, such as ``hidden direction 1``."""
        return tuple(f"hidden direction {number}" for number in range(1, len(self.minima) + 1))

    def training_range(self) -> Doubles:
        """Return the smallest and largest values of both outputs of `apply` over the training rows, ``[2, 2, K]``."""
        ends = np.stack([self.minima, self.maxima])
        clipped = self._clip(ends)
        return np.stack([clipped, _shorten(ends - clipped)])

    def apply(self, columns: Columns) -> tuple[Doubles, Doubles]:
        """Whiten rows, each independently of the others.

        Args:
            columns: Canonical columns, ``[B]`` each.

        Returns:
            The directions, clipped to the range of the training rows and to ±
            `model.encoding.feature_encodings.FURTHEST` standard deviations, ``[B, K]``; and ``log(1 + d)`` of their
            distances d beyond, with signs, ``[B, K]``: a small move of one number is a long way along such a direction.
        """
        directions = _directions(_standardise(self.scales, columns), self.axes)
        clipped = self._clip(directions)
        return clipped, _shorten(directions - clipped)

    def _clip(self, directions: Doubles) -> Doubles:
        """Return the directions clipped to their range."""
        return np.clip(directions, np.maximum(self.minima, -FURTHEST), np.minimum(self.maxima, FURTHEST))


def _shorten(distances: Doubles) -> Doubles:
    """Return ``log(1 + d)`` of the sizes of distances of any shape, with their signs."""
    return np.copysign(np.log1p(np.abs(distances)), distances)


def _standardise(scales: Mapping[str, Scale], columns: Columns) -> Doubles:
    """Return the standardised numbers, ``[B, F]``; 0 for a missing cell."""
    numbers = np.stack([scale.apply(columns[name]) for name, scale in scales.items()], axis=1)
    return np.clip(np.nan_to_num(numbers), -LARGEST, LARGEST)


def _directions(numbers: Doubles, axes: Doubles) -> Doubles:
    """Return the directions of standardised numbers ``[B, F]``, ``[B, K]``, not clipped.

    The sum runs feature by feature: a matrix product would round a row differently in another batch, and a training row
    could lie beyond its own range.
    """
    directions = np.zeros((len(numbers), axes.shape[1]))
    for number, axis in zip(numbers.T, axes, strict=True):
        directions += number[:, None] * axis
    return directions
