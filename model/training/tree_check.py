"""Whether boosted trees predict a number better: a quick check of a fit's held-out error against another kind of model.

Every fit starts at a line, and is smooth: it is slow to learn steps, and what columns mean for few values of others. So
fifty trees (Friedman 2001, "Greedy function approximation: a gradient boosting machine") learn all folds but one, and
are judged on that one. NumPy alone takes a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from murho.model.arrays import Array, Bools, Doubles, Ints
from murho.model.tables.schema import Columns, is_missing
from murho.model.tables.splits import Split

MOST_ROWS, MOST_CELLS, MOST_FEATURES, MOST_BINS = 3_000, 60_000, 200, 4_000
"""Rows, cells, features and bins that are looked at: so many take about a second."""
TREES, DEPTH, RATE, FEWEST_OF_A_LEAF = 50, 5, 0.2, 10
WORSE, STANDARD_ERRORS = 1.1, 2.0
"""Ratio of the errors, and their difference in standard errors, from which on it is said that trees predict better."""


def check_trees(
    metrics: Mapping[str, Any], columns: Columns, targets: Doubles, split: Split
) -> dict[str, float] | None:
    """Return the score of boosted trees on held-out rows, if they err clearly less; else None.

    Args:
        metrics: Metrics of a fit of a number on held-out rows.
        columns: Canonical columns of the features, ``[N]`` each.
        targets: ``[N]``.
        split: The split; without folds nothing is checked.

    Returns:
        Their root mean square error, in the target's unit, as ``rmse``.
    """
    error = metrics["standard_errors"]["rmse"]
    if split.folds is None or error is None or len(columns) > MOST_FEATURES:
        return None
    rmse = _error(columns, targets, split.folds[0], forward=split.forward)
    surely = metrics["rmse"] > max(WORSE * rmse, rmse + STANDARD_ERRORS * error)
    return {"rmse": rmse} if surely else None


def _error(columns: Columns, targets: Doubles, folds: Ints, *, forward: bool) -> float:
    """Return the root mean square error of trees that learn the other folds or, if forward, those before it."""
    count = min(MOST_ROWS, MOST_CELLS // len(columns))
    rows = np.random.default_rng(0).permutation(len(targets))[:count]
    most = min(255, MOST_BINS // len(columns))
    bins = np.stack([_bins(column[rows], most) for column in columns.values()], axis=1)
    truth, folds = targets[rows], folds[rows]
    misses: list[Doubles] = []
    for fold in np.unique(folds[folds >= 0]):
        judged = folds == fold
        learned = folds < fold if forward else ~judged
        if learned.sum() > 2 * FEWEST_OF_A_LEAF:
            misses.append(_boosted(bins, truth, learned)[judged] - truth[judged])
    return float(np.sqrt(np.square(np.concatenate(misses)).mean())) if misses else np.inf


def _bins(column: Array, most: int) -> Ints:
    """Return the cells in at most so many bins of about as many rows, ``[B]``: missing cells are in the first."""
    absent = is_missing(column)
    if absent.all():
        return np.zeros(len(column), np.int64)
    if column.dtype == object:
        column = np.unique(np.where(absent, "", column).astype(str), return_inverse=True)[1]
    ends = np.unique(np.quantile(column[~absent], np.arange(1, most - 1) / (most - 1)))
    return np.where(absent, 0, 1 + np.searchsorted(ends, column, side="left"))


def _boosted(bins: Ints, targets: Doubles, learned: Bools) -> Doubles:
    """Return the predictions for all rows, ``[B]``, of trees that have learned from some."""
    count, features = bins.shape
    width = int(bins.max()) + 1
    places = (bins + width * np.arange(features))[learned]
    answers = np.full(count, targets[learned].mean())
    for _ in range(TREES):
        left = (targets - answers)[learned]
        leaves = np.zeros(count, np.int64)
        for level in range(DEPTH):
            shape = 2**level, features, width
            cells = (leaves[learned, None] * features * width + places).ravel()
            rows, sums = (
                np.bincount(cells, weights, 2**level * features * width).reshape(shape).cumsum(axis=2)
                for weights in (None, left.repeat(features))
            )
            others, rest = rows[..., -1:] - rows, sums[..., -1:] - sums
            gains = sums**2 / np.maximum(rows, 1) + rest**2 / np.maximum(others, 1)
            gains[np.minimum(rows, others) < FEWEST_OF_A_LEAF] = -1.0
            best = gains.reshape(2**level, -1).argmax(axis=1)
            feature, end = np.divmod(best, width)
            end[gains.reshape(2**level, -1).max(axis=1) < 0.0] = width
            leaves = 2 * leaves + (bins[np.arange(count), feature[leaves]] > end[leaves])
        sizes = np.bincount(leaves[learned], minlength=2**DEPTH)
        answers += RATE * (np.bincount(leaves[learned], left, 2**DEPTH) / np.maximum(sizes, 1))[leaves]
    return answers
