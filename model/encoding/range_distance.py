"""Distance of a row from the training rows, as inputs that are zero for every training row.

A weight that no training row informs keeps its prior. So every number and date has an input that is zero among the
training rows, and grows beyond their range. An unseen category has a level of its own for the same reason. Among
training rows these inputs change no answer. Elsewhere the function values of different draws diverge in proportion to
the distance, and epistemic_std grows with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.data.schema import FeatureKind
from murho.model.encoding.feature_encodings import Scaled, Standard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from murho.model.data.schema import Columns, Schema
    from murho.model.encoding.continuation import Continuation
    from murho.model.encoding.feature_encodings import FeatureEncoding

__all__ = ["RangeDistance"]


@dataclass(frozen=True)
class RangeDistance:
    """One input for each number or date: ``(x - clip(x, minimum, maximum)) / std``, and 0 where x is missing.

    This is where the range of a feature is decided, for the distance and for what the network sees beyond it. The range
    of a column with outliers ends at `model.encoding.scaling.FURTHEST` standard deviations.

    Attributes:
        features: Names of the F numbers and dates with a training range, without bounded ones (`Standard.bounded`).
        minima: Lower ends of their training ranges, ``[F]``.
        maxima: Upper ends, ``[F]``.
        stds: Standard deviations over the training rows, ``[F]``.
    """

    features: tuple[str, ...]
    minima: npt.NDArray[np.float64]
    maxima: npt.NDArray[np.float64]
    stds: npt.NDArray[np.float64]

    @classmethod
    def of(cls, schema: Schema, parts: Sequence[FeatureEncoding]) -> Self:
        """Build from the ranges of the schema and the scales of the features' encodings."""
        rows = []
        for feature, part in zip(schema.features, parts, strict=True):
            if feature.kind not in (FeatureKind.NUMERIC, FeatureKind.DATE) or not isinstance(part, Scaled):
                continue
            if feature.minimum is None or feature.maximum is None or (isinstance(part, Standard) and part.bounded):
                continue
            scale = part.scale
            half_width = scale.limit * scale.std
            minimum = max(feature.minimum, scale.mean - half_width)
            maximum = min(feature.maximum, scale.mean + half_width)
            rows.append((feature.name, minimum, maximum, scale.std))
        names, minima, maxima, stds = zip(*rows, strict=True) if rows else ((), (), (), ())
        return cls(names, np.array(minima, float), np.array(maxima, float), np.array(stds, float))

    def followed(self, columns: Columns, continuations: Mapping[str, Continuation]) -> Columns:
        """Return the columns as the network sees them: numbers beyond their range by their continuation.

        Args:
            columns: Canonical columns, ``[B]`` each.
            continuations: Number → continuation; other columns stay as they are.
        """
        if not continuations:
            return columns
        ranges = dict(zip(self.features, zip(self.minima, self.maxima, strict=True), strict=True))
        return {
            name: continuations[name].followed(column, *ranges[name])
            if name in continuations and name in ranges
            else column
            for name, column in columns.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Names such as ``Horsepower beyond the training rows``."""
        return tuple(f"{name} beyond the training rows" for name in self.features)

    def training_range(self, schema: Schema) -> npt.NDArray[np.float64]:
        """Return the smallest and largest inputs of the training rows, ``[2, F]``: 0 for columns without outliers."""
        ranges = {feature.name: (feature.minimum, feature.maximum) for feature in schema.features}
        ends = {name: np.array(ranges[name], float) for name in self.features}
        bounds = np.zeros((2, len(self.features)))
        self.encode(ends, slice(None), bounds)
        return bounds

    def encode(self, columns: Columns, rows: slice, out: npt.NDArray[Any]) -> None:
        """Write the inputs of the B selected ``rows`` into ``out``, ``[B, F]``."""
        if not self.features:
            return
        values = np.stack([columns[name][rows] for name in self.features], axis=1)
        beyond = values - np.minimum(np.maximum(values, self.minima), self.maxima)
        beyond /= self.stds
        beyond[np.isnan(beyond)] = 0.0
        out[:] = beyond
