"""Directions in which correlated numbers hardly vary, as inputs of their own.

Two sensors that rise and fall together hide what their difference tells: standardised, it is a hundredth of either,
and a network takes very many steps to grow weights that see it. Whitening ("sphering") makes such a difference an
input of unit variance: the principal components of least variance, each divided by its standard deviation (LeCun,
Bottou, Orr and Mueller 1998, "Efficient BackProp", section 4.3).

Where the numbers of a row break the pattern that all training rows follow, such a direction lies far out, though each
number by itself is an ordinary one. So each direction is held within what training rows had, and how far it lies beyond
is another input, zero within, as those of `model.encoding.range_distance` are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.data.schema import FeatureKind
from murho.model.encoding.feature_encodings import Scaled
from murho.model.encoding.scaling import FURTHEST
from murho.model.json_validation import expect_fields, expect_numbers, wrong

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from murho.model.data.schema import Columns, Schema
    from murho.model.encoding.feature_encodings import FeatureEncoding
    from murho.model.encoding.scaling import Scale

__all__ = ["Whitening"]

HIDDEN_VARIANCE = 0.1
"""Variance below which a direction is hidden; that of a standardised number is 1."""
LEAST_VARIANCE = 1e-8
"""Share of the largest variance below which a direction is taken for rounding: columns that follow from others."""
ROWS_A_NUMBER = 10
"""With fewer training rows for each number, chance alone makes variances small."""
MOST_DIRECTIONS = 64
"""Those of least variance, which a fit sees last."""

_TILE = 16_384


@dataclass(frozen=True)
class Whitening:
    """Principal components of the standardised numbers whose variance is small, scaled to unit variance.

    A missing cell counts as the mean of its column.

    Attributes:
        features: The numeric features, F of them.
        scales: What standardises them.
        axes: Numbers of the directions, ``[F, K]``; their product with the standardised numbers has unit variance.
        minima: Least values over the training rows, ``[K]``.
        maxima: Largest values, ``[K]``.
    """

    features: tuple[str, ...]
    scales: tuple[Scale, ...]
    axes: npt.NDArray[np.float64]
    minima: npt.NDArray[np.float64]
    maxima: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, schema: Schema, parts: Sequence[FeatureEncoding], columns: Columns) -> Self | None:
        """Finds the hidden directions of the training rows.

        Args:
            schema: The features.
            parts: Their encodings, which standardise the numbers.
            columns: Canonical columns of the training rows, ``[N]`` each.

        Returns:
            None where no direction is hidden, or the rows are too few to tell.
        """
        features, scales = _numbers(schema, parts)
        rows = len(columns[features[0]]) if features else 0
        if len(features) < 2 or rows < ROWS_A_NUMBER * len(features):
            return None
        none = cls(features, scales, np.empty((len(features), 0)), np.empty(0), np.empty(0))
        second_moments = np.zeros((len(features), len(features)))
        for start in range(0, rows, _TILE):
            numbers = none._standardised(columns, slice(start, start + _TILE))
            second_moments += numbers.T @ numbers / rows
        variances, vectors = np.linalg.eigh(second_moments)
        hidden = (variances < HIDDEN_VARIANCE) & (variances > LEAST_VARIANCE * variances[-1])
        if not hidden.any():
            return None
        chosen = np.flatnonzero(hidden)[:MOST_DIRECTIONS]
        axes = vectors[:, chosen] / np.sqrt(variances[chosen])
        # An eigenvector is one with either sign: that of its largest number is made positive.
        largest = np.abs(axes).argmax(axis=0)
        axes *= np.sign(axes[largest, np.arange(axes.shape[1])])
        free = replace(none, axes=axes)
        tiles = [free._directions(columns, slice(at, at + _TILE)) for at in range(0, rows, _TILE)]
        minima = np.min([tile.min(axis=0) for tile in tiles], axis=0)
        maxima = np.max([tile.max(axis=0) for tile in tiles], axis=0)
        return replace(free, minima=minima, maxima=maxima)

    @property
    def count(self) -> int:
        """K, the number of directions."""
        return len(self.axes.T)

    @property
    def variances(self) -> npt.NDArray[np.float64]:
        """Of the directions before they are scaled, ``[K]``; that of a standardised number is 1."""
        return np.asarray(1.0 / np.square(self.axes).sum(axis=0))

    @property
    def names(self) -> tuple[str, ...]:
        """Such as ``hidden direction 1``."""
        return tuple(f"hidden direction {number}" for number in range(1, self.count + 1))

    def training_range(self) -> npt.NDArray[np.float64]:
        """Least and largest values of both parts of `encode` over the training rows, side by side: ``[2, 2 K]``."""
        ends = np.stack([self.minima, self.maxima])
        held = self._held(ends)
        return np.concatenate([held, ends - held], axis=1)

    def encode(
        self, columns: Columns, rows: slice | npt.NDArray[np.intp]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Whitens rows, each by itself.

        Args:
            columns: Canonical columns.
            rows: Which B of their rows, a part or numbers of them.

        Returns:
            The directions, held within the range of the training rows and `model.encoding.scaling.FURTHEST` standard
            deviations, ``[B, K]``; and how far they lie beyond, ``[B, K]``.
        """
        directions = self._directions(columns, rows)
        held = self._held(directions)
        with np.errstate(invalid="ignore"):
            return held, np.nan_to_num(directions - held, nan=0.0, posinf=np.inf, neginf=-np.inf)

    def to_json(self) -> dict[str, Any]:
        """Returns axes and ranges; the encodings of the features have the scales."""
        return {
            "features": list(self.features),
            "axes": self.axes.T.tolist(),
            "minima": self.minima.tolist(),
            "maxima": self.maxima.tolist(),
        }

    @classmethod
    def from_json(cls, data: object, schema: Schema, parts: Sequence[FeatureEncoding], where: str) -> Self:
        """Reads what `to_json` returned.

        Args:
            data: JSON data.
            schema: The features.
            parts: Their encodings.
            where: The field, for messages.

        Raises:
            CheckpointError: The data don't fit; the message names the field.
        """
        fields = expect_fields(data, where, ("features", "axes", "minima", "maxima"))
        features, scales = _numbers(schema, parts)
        if not features or fields["features"] != list(features):
            raise wrong(f"{where}.features", f"the numeric features {list(features)}", fields["features"])
        minima, maxima = (
            np.array(expect_numbers(fields[end], f"{where}.{end}")) for end in ("minima", "maxima")
        )
        axes = fields["axes"]
        if not isinstance(axes, list) or not len(axes) == len(minima) == len(maxima) > 0:
            raise wrong(where, "as many axes as minima and maxima, at least one", axes)
        rows = [expect_numbers(axis, f"{where}.axes[{number}]") for number, axis in enumerate(axes)]
        if any(len(row) != len(features) for row in rows):
            raise wrong(f"{where}.axes", f"{len(features)} numbers an axis", axes)
        if (minima > maxima).any():
            raise wrong(f"{where}.minima", "numbers up to the maxima", fields["minima"])
        return cls(features, scales, np.array(rows).T, minima, maxima)

    @cached_property
    def _standards(self) -> npt.NDArray[np.float64]:
        """Means, standard deviations and limits of the numbers, ``[3, F]``."""
        return np.array([(scale.mean, scale.std, scale.limit) for scale in self.scales]).T

    def _standardised(self, columns: Columns, rows: slice | npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """All numbers as their scales do each, ``[B, F]``; a missing cell 0."""
        means, stds, limits = self._standards
        numbers: npt.NDArray[np.float64] = np.stack([columns[name][rows] for name in self.features], axis=1)
        with np.errstate(over="ignore"):
            numbers = np.clip((numbers - means) / stds, -limits, limits)
        numbers[np.isnan(numbers)] = 0.0
        return numbers

    def _directions(self, columns: Columns, rows: slice | npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """``[B, K]``, not held. Feature by feature, for a matrix product rounds a row otherwise in another batch."""
        numbers = self._standardised(columns, rows)
        directions = np.zeros((len(numbers), self.count))
        with np.errstate(invalid="ignore", over="ignore"):
            for number, axis in zip(numbers.T, self.axes, strict=True):
                directions += number[:, None] * axis
        return directions

    def _held(self, directions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Held within the range; where infinite numbers cancel, 0."""
        least, most = np.maximum(self.minima, -FURTHEST), np.minimum(self.maxima, FURTHEST)
        return np.clip(np.nan_to_num(directions, nan=0.0, posinf=np.inf, neginf=-np.inf), least, most)


def _numbers(schema: Schema, parts: Sequence[FeatureEncoding]) -> tuple[tuple[str, ...], tuple[Scale, ...]]:
    """Names and scales of the numeric features."""
    found = [
        (feature.name, part.scale)
        for feature, part in zip(schema.features, parts, strict=True)
        if feature.kind is FeatureKind.NUMERIC and isinstance(part, Scaled)
    ]
    return tuple(name for name, _ in found), tuple(scale for _, scale in found)
