"""Scores of class probabilities in parts of the rows: by how sure they are, and by category of a feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.schema import FeatureKind
from murho.model.evaluation.subgroup_coverage import FEW_ROWS, GROUPS, category_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns, Schema

__all__ = ["scores_by_category", "scores_by_confidence"]


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
    return [_group(columns, rows, weights) for rows in np.array_split(order, min(GROUPS, len(order)))]


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
                **_group(columns, part.rows, weights),
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


def _group(
    columns: dict[str, NDArray[np.float64]], rows: NDArray[np.int64], weights: NDArray[np.float64] | None
) -> dict[str, Any]:
    chosen = None if weights is None else weights[rows]
    means = {name: float(np.average(values[rows], weights=chosen)) for name, values in columns.items()}
    return {"rows": len(rows), "few": len(rows) < FEW_ROWS, **means}
