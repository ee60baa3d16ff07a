"""Correlation of the normal scores of features, shrunk as far as held-out rows say.

A sample correlation matrix of few rows has eigenvalues that are too small: directions in which the training rows
happen to vary little. A fresh row would then seem far from them. The matrix is shrunk towards the identity (Ledoit
and Wolf 2004, "A well-conditioned estimator for large-dimensional covariance matrices"); how far, the likelihood of
held-out rows decides. So a direction of small variance that held-out rows share is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

__all__ = ["SHRINKAGES", "best_shrinkage", "row_sums", "sample_correlation", "shrunk"]

FEW_PRODUCTS = 2**14
"""Most products in one array; with more, they would not stay in the processor's cache."""
SHRINKAGES = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.06, 0.1, 0.2, 0.35, 0.6, 1.0)
"""Weights of the identity to choose from."""
TILE_ROWS = 1024
"""Rows of a tile, which stay in the processor's cache."""


def sample_correlation(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the mean products of standardised scores ``[N, Q]``, ``[Q, Q]``, with 1 on the diagonal.

    NaN stands for a missing cell: each entry is a mean over the rows that have both cells.
    """
    present = ~np.isnan(scores)
    filled = np.where(present, scores, 0.0)
    together = present.T.astype(np.float64) @ present
    correlation = filled.T @ filled / np.maximum(together, 1.0)
    variances = np.diagonal(correlation).copy()
    scale = 1.0 / np.sqrt(np.where(variances > 0.0, variances, 1.0))
    correlation *= scale[:, None] * scale
    np.fill_diagonal(correlation, 1.0)
    if not present.all():  # means over different rows may not fit together: negative variances
        variances, vectors = np.linalg.eigh(correlation)
        if variances.size and variances[0] < 0.0:
            correlation = (vectors * np.maximum(variances, 0.0)) @ vectors.T
            scale = 1.0 / np.sqrt(np.diagonal(correlation))
            correlation *= scale[:, None] * scale
    return correlation


def shrunk(correlation: npt.NDArray[np.float64], shrinkage: float) -> npt.NDArray[np.float64]:
    """Return the mean of a correlation matrix and the identity, which has the weight ``shrinkage``."""
    return (1.0 - shrinkage) * correlation + shrinkage * np.eye(len(correlation))


def best_shrinkage(folds: Iterable[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]) -> float:
    """Return the one of `SHRINKAGES` with the largest Gaussian likelihood of held-out rows.

    Args:
        folds: Sample correlation of the other rows, ``[Q, Q]``, and scores of the held-out rows, ``[n, Q]``.
    """
    losses = np.zeros(len(SHRINKAGES))
    for correlation, held_out in folds:
        variances, vectors = np.linalg.eigh(correlation)
        # A score of 4 or more is rare among Gaussian rows: a few of them shall not decide.
        squares = np.square(np.clip(np.nan_to_num(held_out), -4.0, 4.0) @ vectors).sum(axis=0)
        for place, shrinkage in enumerate(SHRINKAGES):
            shrunk_variances = (1.0 - shrinkage) * np.maximum(variances, 0.0) + shrinkage
            losses[place] += (squares / shrunk_variances).sum() + len(held_out) * np.log(shrunk_variances).sum()
    return SHRINKAGES[int(losses.argmin())]


def row_sums(values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the product of values ``[B, Q]`` and weights ``[Q, M]``, each row independent of the others.

    The sum runs column by column: a matrix product would round a row differently in another batch.
    """
    if weights.shape[1] > 1 and values.size * weights.shape[1] <= FEW_PRODUCTS:
        # One call for few rows: a sum over the first axis also adds one column after the other.
        return np.asarray(np.add.reduce(values.T[:, :, None] * weights[:, None, :], axis=0))
    spans = [np.flatnonzero(row) for row in weights]
    sums = np.zeros((len(values), weights.shape[1]))
    for start in range(0, len(values), TILE_ROWS):
        tile = sums[start : start + TILE_ROWS]
        for column, row, span in zip(values[start : start + TILE_ROWS].T, weights, spans, strict=True):
            if span.size:
                places = slice(span[0], span[-1] + 1)
                tile[:, places] += column[:, None] * row[places]
    return sums
