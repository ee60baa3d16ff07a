"""How far a function follows a number beyond its training range.

A network goes on beyond the range of its training rows along whatever slope it has at the edge, as far as it is asked.
Some features deserve that (a year in a trend), others do not (the last bin of a price list). So beyond the range the
network sees only a share of the excess, and no more than a certain excess. `model.training.extrapolation` finds
both by extrapolating within the training rows. The distance itself has an input of its own
(`model.encoding.continuation`), and doubt grows in proportion to it. Where a function is not followed that must end:
no single number leaves a function more uncertain than targets are apart. So that input has a limit.

Distance of a row from the training rows, as inputs that are zero for every training row.

A weight that no training row informs keeps its prior. So every number and date has an input that is zero among the
training rows, and grows beyond their range. An unseen category has a level of its own for the same reason. Among
training rows these inputs change no answer. Elsewhere the function values of different draws diverge in proportion to
the distance, and epistemic_std grows with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np

from murho.model.encoding.transforms import Scaled, Standard
from murho.model.json_validation import NotNegative, Share, Stored, null_for
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from murho.model.encoding.transforms import FeatureEncoding
    from murho.model.tables.schema import Columns, Schema

__all__ = [
    "Continuation",
    "RangeDistance",
]


@dataclass(frozen=True, slots=True)
class Continuation(Stored):
    """What the network sees of a number beyond its training range.

    Attributes:
        share: Share of the excess over the range that the network sees, from 0 (the number is held at the edge) to 1.
        below: Largest excess below the range that counts, in the feature's unit.
        above: Largest excess above the range that counts, in the feature's unit.
        furthest: Largest distance that is doubted, in standard deviations of the number. Infinite: no limit.
    """

    share: Share
    below: NotNegative
    above: NotNegative
    furthest: Annotated[float, null_for(math.inf, NotNegative)] = math.inf

    def followed(self, values: npt.NDArray[np.float64], minimum: float, maximum: float) -> npt.NDArray[np.float64]:
        """Return what the network sees of the values ``[B]``; within the range, the values themselves.

        Args:
            values: ``[B]``; NaN stays NaN.
            minimum: Lower end of the training range.
            maximum: Upper end.
        """
        inside = np.minimum(np.maximum(values, minimum), maximum)
        return inside + self.share * np.clip(values - inside, -self.below, self.above)


@dataclass(frozen=True)
class RangeDistance:
    """One input for each number or date: ``(x - clip(x, minimum, maximum)) / std``, and 0 where x is missing.

    This is where the range of a feature is decided, for the distance and for what the network sees beyond it. The range
    of a column with outliers ends at `model.encoding.transforms.FURTHEST` standard deviations.

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
