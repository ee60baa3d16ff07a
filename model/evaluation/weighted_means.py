"""Means over rows with standard errors, where rows may have weights and may belong to units, such as groups of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RowWeights"]


@dataclass(frozen=True, slots=True)
class RowWeights:
    """Weights and units of n rows.

    Attributes:
        shares: Weight of each row, ``[n]``, of sum 1.
        units: Number of the exchangeable unit (a group of rows, say) that each row belongs to, ``[n]``, from 0.
        count: Number of units, U.
        weighted: Whether rows differ in weight.
        grouped: Whether rows share units.
    """

    shares: NDArray[np.float64]
    units: NDArray[np.int64]
    count: int
    weighted: bool
    grouped: bool

    @classmethod
    def of(
        cls, rows: int, weights: NDArray[np.float64] | None = None, units: NDArray[np.generic] | None = None
    ) -> Self:
        """Weights of n rows.

        Args:
            rows: n.
            weights: Relative weights, ``[n]``; None: all rows count alike.
            units: Id of each row's unit, ``[n]``, any kind; None: every row is one.
        """
        shares = np.ones(rows) if weights is None else np.asarray(weights, dtype=np.float64)
        ids = np.arange(rows)
        if units is not None:
            ids = np.unique(units, return_inverse=True)[1].reshape(-1)
        return cls(shares / shares.sum(), ids, int(ids.max()) + 1, weights is not None, units is not None)

    def of_rows(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> RowWeights:
        """The weights of selected rows, by a mask or row numbers."""
        shares, units = self.shares[chosen], self.units[chosen]
        return RowWeights.of(len(shares), shares if self.weighted else None, units if self.grouped else None)

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Means over rows of values ``[n, ...]``."""
        means: NDArray[np.float64] = np.tensordot(self.shares, values, axes=1)
        return means

    def standard_error(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standard errors of `mean`, by the spread of the units' parts in it (Huber 1967; Liang and Zeger 1986).

        With a unit a row and equal weights this is the standard deviation over ``sqrt(n)``. With one unit nothing is
        known of the spread, and the error is not finite.

        Args:
            values: ``[n, ...]``.
        """
        if self.count < 2:
            return np.full(values.shape[1:], np.inf)
        deviations = (values - self.mean(values)) * self.shares.reshape(-1, *[1] * (values.ndim - 1))
        parts = np.zeros((self.count, *values.shape[1:]))
        np.add.at(parts, self.units, deviations)
        errors: NDArray[np.float64] = np.sqrt(np.square(parts).sum(axis=0) * self.count / (self.count - 1))
        return errors
