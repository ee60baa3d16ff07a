"""Parts of the rows: equal ones in the order of a prediction, and the categories of a feature.

Coverage over all rows can be right even if rows of small std are covered too rarely, and rows of large std too often.
So scores of either kind of target are also given for parts of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from murho.model.evaluation.metrics import RowWeights
    from murho.model.tables.schema import Columns, Feature, Schema

__all__ = [
    "BAND",
    "FEW_ROWS",
    "CategoryRows",
    "category_features",
    "category_parts",
    "equal_parts",
    "scores_by_category",
    "scores_of_part",
    "spearman",
]


BAND = 90
"""Nominal coverage of the band or set, per cent."""
PARTS = 10
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


def equal_parts(values: NDArray[np.float64]) -> list[NDArray[np.intp]]:
    """Row numbers of ten parts of equal size, in ascending order of the values ``[N]``; fewer parts of fewer rows."""
    return np.array_split(np.argsort(values, kind="stable"), min(PARTS, len(values)))


def scores_of_part(values: Mapping[str, NDArray[Any] | None], part: NDArray[Any], rows: RowWeights) -> dict[str, Any]:
    """``rows``, the number of rows of a part; ``few``, whether it has under 20; and the means of values.

    Args:
        values: Of each row, ``[N]``; None stays None.
        part: Row numbers.
        rows: Weights of all rows.
    """
    chosen = rows.of_rows(part)
    means = {name: None if column is None else float(chosen.mean(column[part])) for name, column in values.items()}
    return {"rows": len(part), "few": len(part) < FEW_ROWS, **means}


def scores_by_category(
    values: Mapping[str, NDArray[Any] | None], rows: RowWeights, schema: Schema, columns: Columns
) -> dict[str, list[dict[str, Any]]]:
    """The scores of parts by category of each categorical and boolean feature.

    Categories of fewer than 20 rows, unseen ones included, are merged into one part.

    Args:
        values: Of each row, ``[N]``.
        rows: Weights of the rows.
        schema: The schema of the posterior.
        columns: Canonical columns of at least these features, ``[N]`` each.

    Returns:
        Feature → its parts, the largest first: ``category``, the name, None for missing cells and for merged
        categories; the latter also have ``merged``, their number; and what `scores_of_part` returns.
    """
    return {
        feature.name: [
            {
                "category": part.category,
                **({"merged": part.merged} if part.merged else {}),
                **scores_of_part(values, part.rows, rows),
            }
            for part in category_parts(feature, columns[feature.name])
        ]
        for feature in category_features(schema)
    }


def category_features(schema: Schema) -> list[Feature]:
    """The features that have categories: categorical and boolean ones."""
    return [feature for feature in schema.features if feature.kind in (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN)]


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
