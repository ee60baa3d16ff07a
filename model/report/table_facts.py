"""The table in short: what each column holds, how often cells are missing, and how the values are distributed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.cells import format_date
from murho.model.data.columns import is_missing
from murho.model.data.schema import FeatureKind
from murho.model.report.class_facts import class_target_facts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns, Feature
    from murho.model.posterior.model_spec import ModelSpec

__all__ = ["histogram", "table_facts", "target_facts"]

BINS = 20
MOST_CATEGORIES = 12


def histogram(values: NDArray[np.float64], bins: int = BINS) -> dict[str, list[Any]] | None:
    """Counts in equal bins from the least to the largest value; None without a value.

    Args:
        values: ``[n]``; NaN is left out.
        bins: Number of bins.

    Returns:
        ``edges``, one more than ``counts``.
    """
    present = values[np.isfinite(values)]
    if not len(present):
        return None
    counts, edges = np.histogram(present, bins)
    return {"edges": [float(f"{edge:.6g}") for edge in edges], "counts": counts.tolist()}


def target_facts(spec: ModelSpec, targets: NDArray[np.float64] | None) -> dict[str, Any]:
    """Name and unit of the target and, with its values ``[n]``, their distribution."""
    target = spec.schema.target
    if target.classes is not None:
        return class_target_facts(spec, targets)
    facts: dict[str, Any] = {"name": target.name, "unit": target.unit}
    if targets is None:
        return facts
    summary = {"min": targets.min(), "median": np.median(targets), "max": targets.max(), "std": targets.std()}
    return facts | {name: float(value) for name, value in summary.items()} | {"histogram": histogram(targets)}


def table_facts(spec: ModelSpec, columns: Columns | None) -> dict[str, Any]:
    """The columns of a table.

    Args:
        spec: The specification of the checkpoint.
        columns: Canonical columns of the rows, ``[n]`` each; None: only what the specification tells.

    Returns:
        ``rows`` that were learned from, ``left_out_rows``, ``left_out`` (column → reason), ``advice``, and
        ``features``, each as `Feature.describe`, with ``missing_share``, and ``histogram`` or ``counts``.
    """
    training = spec.training
    return {
        "rows": training.get("rows"),
        "left_out_rows": training.get("left_out_rows", 0),
        "left_out": dict(spec.schema.left_out),
        "advice": [piece.get("message", "") for piece in training.get("advice", [])],
        "features": [
            {**feature.describe(), **({} if columns is None else _distribution(feature, columns[feature.name]))}
            for feature in spec.schema.features
        ],
    }


def _distribution(feature: Feature, column: NDArray[Any]) -> dict[str, Any]:
    missing = is_missing(column)
    facts: dict[str, Any] = {"missing_share": float(missing.mean())}
    present = column[~missing]
    if feature.kind is FeatureKind.CATEGORICAL:
        counted = Counter(present.tolist()).most_common()
        facts["counts"] = [{"category": name, "rows": rows} for name, rows in counted[:MOST_CATEGORIES]]
        facts["further_categories"] = max(0, len(counted) - MOST_CATEGORIES)
    elif feature.kind is FeatureKind.BOOLEAN:
        facts["counts"] = [{"category": value, "rows": int((present == value).sum())} for value in (True, False)]
    else:
        made = histogram(present.astype(np.float64))
        if made is not None and feature.kind is FeatureKind.DATE:
            made["edges"] = [format_date(edge) for edge in made["edges"]]
        facts["histogram"] = made
    return facts
