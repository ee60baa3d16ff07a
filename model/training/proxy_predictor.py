"""A cheap predictor that stands for a network where only a comparison matters: the same rows, held out in other ways.

Ridge regression on the standardised and one-hot encoded features, then the mean residual of the nearest rows: along
each date alone, then in all features. It takes milliseconds, and like a network it follows what rows nearby have in
common.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.columns import is_missing
from murho.model.data.duplicates import column_codes

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from murho.model.data.schema import Columns

__all__ = ["Proxy"]

NEIGHBOURS = 8
RIDGE = 1e-2
"""Penalty of the squared coefficients, per row."""
MOST_LEVELS = 200


@dataclass(frozen=True, slots=True)
class Proxy:
    """A table in the form that the predictor reads.

    Attributes:
        inputs: Encoded features of n rows, ``[n, D]``, mean 0.
        dates: Standardised dates, ``[n, C]``; C may be 0.
        targets: Normal scores of the ranks of the targets, ``[n]``: a few huge targets decide nothing.
    """

    inputs: NDArray[np.float64]
    dates: NDArray[np.float64]
    targets: NDArray[np.float64]

    @classmethod
    def of(cls, columns: Columns, targets: NDArray[np.float64], dates: Collection[str]) -> Proxy:
        """Encode a table.

        Args:
            columns: Canonical columns of the features, ``[n]`` each.
            targets: Targets, ``[n]``.
            dates: The names of the dates among the columns.
        """
        parts = [
            _levels(column) if column.dtype == object else _standardised(column)[:, None] for column in columns.values()
        ]
        inputs = np.concatenate(parts, axis=1)
        times = [_standardised(columns[name])[:, None] for name in dates if name in columns]
        ranks = np.argsort(np.argsort(targets, kind="stable"), kind="stable")
        return cls(
            inputs - inputs.mean(axis=0),
            np.concatenate([np.zeros((len(targets), 0)), *times], axis=1),
            _normal_scores((ranks + 0.5) / len(targets)),
        )

    def errors(self, learned: NDArray[np.int64], asked: NDArray[np.int64]) -> NDArray[np.float64]:
        """Absolute errors at some rows, by a predictor fitted to others.

        Args:
            learned: Indices of the rows to fit to, at least one.
            asked: Indices of the m rows to predict.

        Returns:
            ``[m]``, in standard deviations of the targets.
        """
        inputs, targets = self.inputs[learned], self.targets[learned]
        centre, level = inputs.mean(axis=0), targets.mean()
        centred = inputs - centre
        gram = centred.T @ centred + RIDGE * len(learned) * np.eye(inputs.shape[1])
        slopes = np.linalg.solve(gram, centred.T @ (targets - level))
        predicted = level + (self.inputs[asked] - centre) @ slopes
        residuals = targets - level - centred @ slopes
        for space in (*(date[:, None] for date in self.dates.T), self.inputs):
            correction, own = _nearest_means(space[learned], space[asked], residuals)
            predicted, residuals = predicted + correction, residuals - own
        errors: NDArray[np.float64] = np.abs(self.targets[asked] - predicted)
        return errors


def _nearest_means(
    learned: NDArray[np.float64], asked: NDArray[np.float64], residuals: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean residual of the nearest learned rows, for the asked rows and, without the row itself, for the learned."""
    count = min(NEIGHBOURS, len(learned) - 1)
    if count < 1 or not learned.shape[1]:
        return np.zeros(len(asked)), np.zeros(len(learned))

    def distances(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        squares: NDArray[np.float64] = (
            (rows**2).sum(axis=1)[:, None] + (learned**2).sum(axis=1) - 2.0 * rows @ learned.T
        )
        return squares

    nearest = np.argpartition(distances(asked), count - 1, axis=1)[:, :count]
    between = distances(learned)
    np.fill_diagonal(between, np.inf)
    others = np.argpartition(between, count - 1, axis=1)[:, :count]
    return residuals[nearest].mean(axis=1), residuals[others].mean(axis=1)


def _standardised(column: NDArray[np.float64]) -> NDArray[np.float64]:
    present = column[~is_missing(column)]
    scale = float(present.std()) if present.size else 0.0
    if not (np.isfinite(scale) and scale > 0.0):
        return np.zeros(len(column))
    standardised: NDArray[np.float64] = np.nan_to_num((column - present.mean()) / scale, nan=0.0).clip(-5.0, 5.0)
    return standardised


def _levels(column: NDArray[np.object_]) -> NDArray[np.float64]:
    """One column of 0 and 1 for each of the most frequent categories."""
    codes = column_codes(column)
    frequent = np.argsort(-np.bincount(codes), kind="stable")[:MOST_LEVELS]
    return np.asarray(codes[:, None] == frequent, dtype=np.float64)


def _normal_scores(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The normal quantiles of shares, by a rational approximation with an error below 5e-4."""
    tail = np.minimum(shares, 1.0 - shares)
    t = np.sqrt(-2.0 * np.log(tail))
    # Abramowitz & Stegun 1964, formula 26.2.23.
    size = t - (2.515517 + 0.802853 * t + 0.010328 * t**2) / (1.0 + 1.432788 * t + 0.189269 * t**2 + 0.001308 * t**3)
    return np.where(shares < 0.5, -size, size)
