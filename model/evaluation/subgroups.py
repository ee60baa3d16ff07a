"""Coverage and scores in parts of the rows: by predicted doubt, and by category of a feature.

Scores of class probabilities in parts of the rows: by how sure they are, and by category of a feature.

Coverage of bands in subgroups of the rows, by predicted std and by category, and Spearman's rank correlation.

Coverage over all rows can be right even if rows of small std are covered too rarely, and rows of large std too often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.evaluation.row_scores import RowScores
    from murho.model.tables.schema import Columns, Feature, Schema

__all__ = [
    "BAND",
    "FEW_ROWS",
    "GROUPS",
    "CategoryRows",
    "category_parts",
    "coverage_by_category",
    "coverage_by_std",
    "scores_by_category",
    "scores_by_confidence",
    "spearman",
]


BAND = 90
"""Nominal coverage of the band, per cent."""
GROUPS = 10
FEW_ROWS = 20
"""With fewer rows, the standard error of the coverage of a 90 % band exceeds 6.7 points."""


def spearman(first: NDArray[np.float64], second: NDArray[np.float64]) -> float | None:
    """Spearman's rank correlation of two arrays ``[N]``, with mean ranks for ties; None if one array is constant."""
    ranks = _ranks(first), _ranks(second)
    deviations = [rank - rank.mean() for rank in ranks]
    norm = float(np.sqrt(np.sum(deviations[0] ** 2) * np.sum(deviations[1] ** 2)))
    return float(np.sum(deviations[0] * deviations[1])) / norm if norm > 0.0 else None


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (counts.cumsum() - 0.5 * (counts - 1))[place]
    return ranks


def coverage_by_std(row_scores: RowScores) -> list[dict[str, Any]]:
    """Coverage of the 90 % band in ten groups of equal size by predicted std, in ascending order.

    Returns:
        For each group ``std``, the smallest and the largest one, ``rmse``, to compare with it, and ``rows``, ``few``,
        ``raw`` and ``calibrated``, as in `coverage_by_category`. With fewer than ten rows there are fewer groups.
        Groups have equal numbers of rows; their scores are weighted means if the rows have weights.
    """
    order = np.argsort(row_scores.std, kind="stable")
    return [
        {
            "std": [float(row_scores.std[rows[0]]), float(row_scores.std[rows[-1]])],
            "rmse": float(np.sqrt(np.average(row_scores.errors[rows] ** 2, weights=_weights(row_scores, rows)))),
            **_group(row_scores, rows),
        }
        for rows in np.array_split(order, min(GROUPS, len(order)))
    ]


def coverage_by_category(row_scores: RowScores, schema: Schema, columns: Columns) -> dict[str, list[dict[str, Any]]]:
    """Coverage of the 90 % band by category of each categorical and boolean feature.

    Categories of fewer than 20 rows, unseen ones included, are merged into one group.

    Args:
        row_scores: Scores of N rows.
        schema: The schema of the posterior.
        columns: Canonical columns of the features, ``[N]`` each.

    Returns:
        Feature → its groups, the largest first. A group has ``category``, its name; ``rows``, their number; ``few``,
        whether there are fewer than 20; and the coverage, ``raw`` and ``calibrated`` (None without calibration). The
        name is None for missing cells and for merged categories; the latter also have ``merged``, their number.
    """
    kinds = (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN)
    return {
        feature.name: [
            {
                "category": part.category,
                **({"merged": part.merged} if part.merged else {}),
                **_group(row_scores, part.rows),
            }
            for part in category_parts(feature, columns[feature.name])
        ]
        for feature in schema.features
        if feature.kind in kinds
    }


@dataclass(frozen=True, slots=True)
class CategoryRows:
    """Rows of one category, or of ``merged`` small ones."""

    category: str | bool | None
    rows: NDArray[np.int64]
    merged: int = 0

    @property
    def mergeable(self) -> bool:
        """Whether the category has so few rows that it is merged with others."""
        return len(self.rows) < FEW_ROWS and self.category is not None


def category_parts(feature: Feature, column: NDArray[Any]) -> list[CategoryRows]:
    """Rows of each category, the largest part first, with small categories merged at the end."""
    if feature.kind is FeatureKind.BOOLEAN:
        cells: list[str | bool | None] = [None if np.isnan(cell) else bool(cell) for cell in column]
    else:
        cells = list(column)
    numbers: dict[str | bool | None, int] = {}
    codes = np.array([numbers.setdefault(cell, len(numbers)) for cell in cells])
    order = np.argsort(codes, kind="stable")
    rows_of = np.split(order, np.cumsum(np.bincount(codes, minlength=len(numbers)))[:-1])
    parts = [CategoryRows(category, rows_of[number]) for category, number in numbers.items()]
    parts.sort(key=lambda part: (-len(part.rows), part.category is None, str(part.category)))
    small = [part for part in parts if part.mergeable]
    if len(small) < 2:
        return parts
    merged = CategoryRows(None, np.sort(np.concatenate([part.rows for part in small])), merged=len(small))
    return [*(part for part in parts if not part.mergeable), merged]


def _weights(row_scores: RowScores, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
    return None if row_scores.weights is None else row_scores.weights[rows]


def _group(row_scores: RowScores, rows: NDArray[np.int64]) -> dict[str, Any]:
    """Number of rows, whether they are ``few``, and the band's coverage, ``raw`` and ``calibrated`` (or None)."""
    return {
        "rows": len(rows),
        "few": len(rows) < FEW_ROWS,
        "raw": row_scores.raw.coverage(BAND, rows),
        "calibrated": None if row_scores.calibrated is None else row_scores.calibrated.coverage(BAND, rows),
    }


def scores_by_confidence(
    probabilities: NDArray[np.float64],
    labels: NDArray[np.int64],
    losses: NDArray[np.float64],
    sets: NDArray[np.bool_],
    weights: NDArray[np.float64] | None = None,
) -> list[dict[str, Any]]:
    """Scores in ten groups of equal size by the probability of the likeliest class, from the least sure on.

    Args:
        probabilities: ``[N, C]``.
        labels: ``[N]``.
        losses: Log loss of each row, nats, ``[N]``.
        sets: Whether each class is in the row's 90 % set, ``[N, C]``.
        weights: ``[N]``; None: all rows count alike.

    Returns:
        For each group ``rows``, their number; ``few``, whether there are fewer than 20; the means ``confidence``, the
        probability of the likeliest class, to compare with ``accuracy``; ``log_loss``; ``coverage`` and ``size`` of the
        sets. With fewer than ten rows there are fewer groups.
    """
    order = np.argsort(probabilities.max(axis=1), kind="stable")
    columns = _columns(probabilities, labels, losses, sets)
    return [_class_group(columns, rows, weights) for rows in np.array_split(order, min(GROUPS, len(order)))]


def scores_by_category(
    probabilities: NDArray[np.float64],
    labels: NDArray[np.int64],
    losses: NDArray[np.float64],
    sets: NDArray[np.bool_],
    schema: Schema,
    features: Columns,
    weights: NDArray[np.float64] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """The scores of `scores_by_confidence` by category of each categorical and boolean feature.

    Categories of fewer than 20 rows, unseen ones included, are merged into one group.

    Args:
        probabilities: ``[N, C]``.
        labels: ``[N]``.
        losses: Log loss of each row, nats, ``[N]``.
        sets: Whether each class is in the row's 90 % set, ``[N, C]``.
        schema: The schema of the posterior.
        features: Canonical columns of the features, ``[N]`` each.
        weights: ``[N]``; None: all rows count alike.

    Returns:
        Feature → its groups, the largest first. Each has ``category``, its name; it is None for missing cells and for
        merged categories; the latter also have ``merged``, their number.
    """
    columns = _columns(probabilities, labels, losses, sets)
    kinds = (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN)
    return {
        feature.name: [
            {
                "category": part.category,
                **({"merged": part.merged} if part.merged else {}),
                **_class_group(columns, part.rows, weights),
            }
            for part in category_parts(feature, features[feature.name])
        ]
        for feature in schema.features
        if feature.kind in kinds
    }


def _columns(
    probabilities: NDArray[np.float64],
    labels: NDArray[np.int64],
    losses: NDArray[np.float64],
    sets: NDArray[np.bool_],
) -> dict[str, NDArray[np.float64]]:
    """The values of each row of which groups have the mean, ``[N]``."""
    return {
        "accuracy": (probabilities.argmax(axis=1) == labels).astype(np.float64),
        "confidence": probabilities.max(axis=1),
        "log_loss": losses,
        "coverage": sets[np.arange(len(labels)), labels].astype(np.float64),
        "size": sets.sum(axis=1).astype(np.float64),
    }


def _class_group(
    columns: dict[str, NDArray[np.float64]], rows: NDArray[np.int64], weights: NDArray[np.float64] | None
) -> dict[str, Any]:
    chosen = None if weights is None else weights[rows]
    means = {name: float(np.average(values[rows], weights=chosen)) for name, values in columns.items()}
    return {"rows": len(rows), "few": len(rows) < FEW_ROWS, **means}
