"""Standardisation of one column of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.json_validation import expect_fields, expect_number, wrong

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["FURTHEST", "Scale"]

FURTHEST = 5.0
"""Standardised numbers are clipped at ± this many standard deviations, if a training row lies further out.

The distance beyond is an input of its own (`model.encoding.range_distance`). Without the limit, one cell with a
misplaced decimal point, forty standard deviations out, would distort the whole function."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Standardisation of numbers: ``(x - mean) / std``, clipped to ±limit.

    Attributes:
        mean: Mean of the training rows, in the column's unit.
        std: Standard deviation of the training rows (1/N), above 0, in the column's unit.
        limit: `FURTHEST` if a training row lies further out, otherwise infinite.
    """

    mean: float
    std: float
    limit: float = math.inf

    @classmethod
    def fit(cls, column: npt.NDArray[np.float64]) -> Self:
        """Fit to the cells of ``[N]`` other than NaN; std is 1 if they are all equal, or if there are none."""
        present = column[~np.isnan(column)]
        if present.size == 0:
            return cls(0.0, 1.0)
        if present.min() == present.max():
            return cls(float(present[0]), 1.0)
        # Divide by the largest first: squares of numbers around 1e200 would overflow.
        largest = float(np.abs(present).max())
        shrunk = present / largest
        std = float(shrunk.std()) * largest
        scale = cls(float(shrunk.mean()) * largest, std if std > 0 else 1.0)
        outliers = bool(np.abs(scale.apply(present)).max() > FURTHEST)
        return replace(scale, limit=FURTHEST) if outliers else scale

    def apply(self, column: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the standardised numbers ``[B]``, clipped to ±limit. NaN stays NaN, and overflow is infinite."""
        with np.errstate(over="ignore"):
            standardised = (column - self.mean) / self.std
        return standardised if math.isinf(self.limit) else np.clip(standardised, -self.limit, self.limit)

    def to_json(self) -> dict[str, Any]:
        """Return the scale as JSON data."""
        return {
            "mean": self.mean,
            "std": self.std,
            "limit": self.limit if math.isfinite(self.limit) else None,
        }

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """Read what `to_json` returned.

        Raises:
            CheckpointError: The data don't fit; the message names the field, which begins with ``where``.
        """
        fields = expect_fields(data, where, ("mean", "std", "limit"))
        scale = cls(expect_number(fields["mean"], f"{where}.mean"), expect_number(fields["std"], f"{where}.std"))
        if fields["limit"] is not None:
            scale = replace(scale, limit=expect_number(fields["limit"], f"{where}.limit"))
        if scale.limit <= 0:
            raise wrong(f"{where}.limit", "a number above 0, or null", scale.limit)
        if scale.std <= 0:
            raise wrong(f"{where}.std", "a number above 0", scale.std)
        return scale
