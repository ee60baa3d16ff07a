"""The levels of a boolean or a category: their shares of the training rows, and indicators of the frequent ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.data.schema import FeatureKind
from murho.model.json_validation import expect_list, expect_whole, wrong

if TYPE_CHECKING:
    import numpy.typing as npt

    from murho.model.data.schema import Feature

__all__ = ["LevelShares"]

LEAST_SHARE = 0.05
"""Least share of a level with an indicator. A rarer one would have a standardised indicator far from Gaussian."""


@dataclass(frozen=True)
class LevelShares:
    """Counts of the levels of a feature over the training rows.

    Attributes:
        levels: The categories of the feature, or 0 and 1.
        counts: Number of training rows with each level, ``[L]``.
    """

    levels: tuple[Any, ...]
    counts: npt.NDArray[np.int64]

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self | None:
        """Count the levels of the column ``[N]`` of the training rows; None if all cells are missing."""
        shares = cls(_levels(feature), np.zeros(0, dtype=np.int64))
        codes = shares.codes(column)
        counts = np.bincount(codes[codes >= 0], minlength=len(shares.levels))
        return cls(shares.levels, counts) if counts.sum() else None

    def codes(self, column: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the level of each cell of ``[B]``, -1 for missing cells and unseen categories."""
        if column.dtype == object:
            return np.fromiter((self._places.get(value, -1) for value in column), dtype=np.int64, count=len(column))
        return np.where(np.isnan(column), -1, column != 0.0).astype(np.int64)

    @cached_property
    def shares(self) -> npt.NDArray[np.float64]:
        """Share of each level among the training rows with a value, ``[L]``."""
        return np.asarray(self.counts / self.counts.sum())

    @cached_property
    def indicated(self) -> npt.NDArray[np.intp]:
        """The levels with an indicator, the most frequent first: all with `LEAST_SHARE` but the most frequent one."""
        order = np.argsort(-self.counts, kind="stable")[1:]
        return order[self.shares[order] >= LEAST_SHARE]

    @cached_property
    def stds(self) -> npt.NDArray[np.float64]:
        """Standard deviation of the indicator of each level, ``[L]``."""
        return np.sqrt(self.shares * (1.0 - self.shares))

    def indicators(self, codes: npt.NDArray[np.int64], levels: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Return standardised indicators of some levels, ``[..., len(levels)]``; NaN where the code is -1.

        Args:
            codes: Levels of rows, any shape.
            levels: The levels that are indicated.
        """
        standardised = ((codes[..., None] == levels) - self.shares[levels]) / self.stds[levels]
        return np.where(codes[..., None] < 0, np.nan, standardised)

    def column(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the canonical column of levels, in the shape of the codes."""
        levels = np.empty(len(self.levels), dtype=object if isinstance(self.levels[0], str) else np.float64)
        levels[:] = self.levels
        column: npt.NDArray[Any] = levels[codes]
        return column

    @cached_property
    def _places(self) -> dict[Any, int]:
        return {level: place for place, level in enumerate(self.levels)}

    def to_json(self) -> list[int]:
        """Return the counts as JSON data."""
        counts: list[int] = self.counts.tolist()
        return counts

    @classmethod
    def from_json(cls, feature: Feature, data: object, where: str) -> Self:
        """Read what `to_json` returned.

        Raises:
            CheckpointError: The data are no counts of the feature's levels.
        """
        counts = [expect_whole(count, where) for count in expect_list(data, where)]
        levels = _levels(feature)
        if len(counts) != len(levels) or not sum(counts):
            raise wrong(where, f"{len(levels)} counts, some above 0", data)
        return cls(levels, np.array(counts))


def _levels(feature: Feature) -> tuple[Any, ...]:
    return feature.categories if feature.kind is FeatureKind.CATEGORICAL else (0.0, 1.0)
