"""Standardising one column of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from model.fields import expect_fields, expect_number, wrong

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["FURTHEST", "Scale"]

FURTHEST = 5.0
"""Standardised numbers end here; what lies further out is told by an input of its own, see `model.beyond`.

A cell with a slipped decimal point, forty standard deviations out, would otherwise drag the whole function along."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Standardises numbers: ``(x - mean) / std``, held within ±`FURTHEST`.

    Attributes:
        mean: Mean of the training rows, in the column's unit.
        std: Their standard deviation (1/N), above 0, in the column's unit.
    """

    mean: float
    std: float

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
        return cls(float(shrunk.mean()) * largest, std if std > 0 else 1.0)

    def apply(self, column: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Returns the standardised numbers ``[B]``, held within ±`FURTHEST`; NaN stays NaN."""
        return np.clip((column - self.mean) / self.std, -FURTHEST, FURTHEST)

    def to_json(self) -> dict[str, Any]:
        """Returns the scale as JSON data."""
        return {"mean": self.mean, "std": self.std}

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """Reads what `to_json` returned.

        Raises:
            CheckpointError: The data don't fit; the message names the field, which begins with ``where``.
        """
        fields = expect_fields(data, where, ("mean", "std"))
        scale = cls(
            expect_number(fields["mean"], f"{where}.mean"), expect_number(fields["std"], f"{where}.std")
        )
        if scale.std <= 0:
            raise wrong(f"{where}.std", "a number above 0", scale.std)
        return scale
