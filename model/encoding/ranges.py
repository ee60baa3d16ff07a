"""The training ranges of numbers and dates: how far beyond a row lies, and how far its function is followed there.

A network goes on beyond the range of its training rows along whatever slope it has at the edge, as far as it is asked.
Some features deserve that (a year in a trend), others do not (the last bin of a price list). So beyond the range the
network sees only a share of the excess, and no more than a certain excess. `model.training.extrapolation` finds
both by extrapolating within the training rows.

A weight that no training row informs keeps its prior. So every number and date has an input that is zero among the
training rows, and grows beyond their range. An unseen category has a level of its own for the same reason. Among
training rows these inputs change no answer. Elsewhere the function values of different draws diverge in proportion to
the distance, and epistemic_std grows with it. Where a function is not followed that must end: no single number leaves a
function more uncertain than targets are apart. So that input has a limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

import numpy as np

from murho.model.encoding.transforms import FeatureEncoding, Scaled, Standard
from murho.model.json_validation import NotNegative, Share, Stored, null_for
from murho.model.tables.schema import Columns, FeatureKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from murho.model.arrays import Doubles


__all__ = [
    "Continuation",
    "Ranges",
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


_FOLLOWED = Continuation(1.0, math.inf, math.inf)
"""A number without a continuation is seen as it is."""


@dataclass(frozen=True)
class Ranges:
    """The ranges of F numbers and dates; each of their inputs is ``(x - clip(x, minimum, maximum)) / std``.

    This is where the range of a feature is decided, for the distance and for what the network sees beyond it. The range
    of a column with outliers ends at `model.encoding.transforms.FURTHEST` standard deviations.

    Attributes:
        features: The numbers and dates with a training range, without bounded ones (`Standard.bounded`).
        minima: Lower ends of their training ranges, ``[F]``.
        maxima: Upper ends, ``[F]``.
        stds: Standard deviations over the training rows, ``[F]``.
        rules: What is seen beyond: share and largest excess below and above, ``[3, F]`` (`Continuation`).
        furthest: Largest distances that are doubted, ``[F]``.
    """

    features: tuple[str, ...]
    minima: Doubles
    maxima: Doubles
    stds: Doubles
    rules: Doubles
    furthest: Doubles

    @classmethod
    def of(cls, parts: Sequence[FeatureEncoding], continuations: Mapping[str, Continuation]) -> Self:
        """Build from the ranges of the features, the scales of their encodings, and continuations by name."""
        names, rows = [], []
        for part in parts:
            feature = part.feature
            bounded = isinstance(part, Standard) and (part.bounded or feature.kind is FeatureKind.BOOLEAN)
            if not isinstance(part, Scaled) or bounded or feature.minimum is None or feature.reach is None:
                continue
            scale, rule = part.scale, continuations.get(feature.name, _FOLLOWED)
            half_width = scale.limit * scale.std
            ends = max(feature.minimum, scale.mean - half_width), min(feature.reach, scale.mean + half_width)
            names.append(feature.name)
            rows.append((*ends, scale.std, rule.share, rule.below, rule.above, rule.furthest))
        minima, maxima, stds, *rules, furthest = np.array(rows, dtype=np.float64).reshape(-1, 7).T
        return cls(tuple(names), minima, maxima, stds, np.array(rules), furthest)

    def measure(self, columns: Columns) -> tuple[Doubles, Columns]:
        """Return the distances beyond the ranges, and the columns as the network sees them.

        Args:
            columns: Canonical columns, ``[B]`` each.

        Returns:
            Distances, ``[B, F]``, 0 where a cell is missing. And the columns, in which numbers beyond their range
            follow their continuation.
        """
        if not self.features:
            return np.zeros((len(next(iter(columns.values()))), 0)), columns
        values = np.stack([*map(columns.__getitem__, self.features)], axis=1)
        inside = np.minimum(np.maximum(values, self.minima), self.maxima)
        excess = values - inside
        excess[np.isnan(excess)] = 0.0
        if not excess.any():
            return excess, columns
        share, below, above = self.rules
        seen = inside + share * np.clip(excess, -below, above)
        return excess / self.stds, {**columns, **dict(zip(self.features, seen.T, strict=True))}
