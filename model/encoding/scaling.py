"""Standardising one column of numbers."""

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
"""Where training rows lie further out than this many standard deviations, standardised numbers end here.

What lies beyond is told by an input of its own, see `model.encoding.range_distance`. A cell with a slipped decimal
point, forty standard deviations out, would otherwise drag the whole function along."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Standardises numbers: ``(x - mean) / std``, held within ±limit.

    Attributes:
        mean: Mean of the training rows, in the column's unit.
        std: Their standard deviation (1/N), above 0, in the column's unit.
        limit: `FURTHEST` if a training row lies further out than that, else infinite.
    """

    mean: float
    std: float
    limit: float = math.inf

    @classmethod
    def fit(cls, column: npt.NDArray[np.float64]) -> Self:
        """Fits to the cells of ``[N]`` that aren't NaN; std is 1 if they don't differ or there are none."""
        present = column[~np.isnan(column)]
        if present.size == 0:
            return cls(0.0, 1.0)
        if present.min() == present.max():
            return cls(float(present[0]), 1.0)
        # Divided by the largest first: squares of numbers around 1e200 would overflow.
        largest = float(np.abs(present).max())
        shrunk = present / largest
        std = float(shrunk.std()) * largest
        scale = cls(float(shrunk.mean()) * largest, std if std > 0 else 1.0)
        outliers = bool(np.abs(scale.apply(present)).max() > FURTHEST)
        return replace(scale, limit=FURTHEST) if outliers else scale

    def apply(self, column: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Returns the standardised numbers ``[B]``, held within ±limit; NaN stays NaN, too large is infinite."""
        with np.errstate(over="ignore"):
            standardised = (column - self.mean) / self.std
        return standardised if math.isinf(self.limit) else np.clip(standardised, -self.limit, self.limit)

    def to_json(self) -> dict[str, Any]:
        """Returns the scale as JSON data."""
        return {
            "mean": self.mean,
            "std": self.std,
            "limit": self.limit if math.isfinite(self.limit) else None,
        }

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """Reads what `to_json` returned.

        Raises:
            CheckpointError: The data don't fit; the message names the field, which begins with ``where``.
        """
        fields = expect_fields(data, where, ("mean", "std", "limit"))
        scale = cls(
            expect_number(fields["mean"], f"{where}.mean"), expect_number(fields["std"], f"{where}.std")
        )
        if fields["limit"] is not None:
            scale = replace(scale, limit=expect_number(fields["limit"], f"{where}.limit"))
        if scale.limit <= 0:
            raise wrong(f"{where}.limit", "a number above 0, or null", scale.limit)
        if scale.std <= 0:
            raise wrong(f"{where}.std", "a number above 0", scale.std)
        return scale
