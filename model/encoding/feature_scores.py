"""Scores of single features over the training rows: normal scores of numbers and dates, indicators of levels.

The normal score of a value is the standard normal quantile of its rank among the training rows. A column of any shape
becomes about Gaussian in this way. Beyond the training range the score goes on linearly, in standard deviations of
the column: a value that lies far out in the column's own unit has a score far out, also for a uniform column. A boolean
or a category has an indicator for each of its frequent levels but one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from murho.model.encoding.transforms import Scale
from murho.model.json_validation import Counts, Positive, Stored, Vector
from murho.model.tables.schema import Feature, FeatureKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from murho.model.arrays import Doubles, Ints, Places


__all__ = [
    "MOST_KNOTS",
    "LevelShares",
    "QuantileScores",
    "levels_of",
    "normal_cdf",
    "normal_quantile",
]

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
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self | None:
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

    def column(self, codes: Ints) -> npt.NDArray[Any]:
        """Return the canonical column of levels, in the shape of the codes."""
        return np.array(self.levels, dtype=object if isinstance(self.levels[0], str) else np.float64)[codes]

    @cached_property
    def places(self) -> dict[Any, int]:
        """Number of each level."""
        return {level: place for place, level in enumerate(self.levels)}
