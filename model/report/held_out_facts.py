"""What held-out rows say of the predictions: agreement, reliability, PIT, and coverage of parts of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.schema import FeatureKind
from murho.model.evaluation.class_held_out import HeldOutClasses
from murho.model.evaluation.metrics import PERCENTILES
from murho.model.evaluation.subgroup_coverage import FEW_ROWS, category_parts
from murho.model.report.class_facts import class_held_out_facts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns, Schema
    from murho.model.evaluation.held_out_rows import HeldOutRows

__all__ = ["held_out_facts"]

PIT_BINS = 20
GROUPS = 10
BINS_OF_AGREEMENT = 15
FEWEST_ROWS_OF_A_BIN = 10
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BAND = 0.9


def held_out_facts(rows: HeldOutRows | HeldOutClasses, schema: Schema, columns: Columns) -> dict[str, Any]:
    """Summaries of held-out rows, none of which is a row; of a classifier see `class_facts.class_held_out_facts`.

    Args:
        rows: Predictions for n rows.
        schema: Schema of the checkpoint.
        columns: Canonical columns of these rows, ``[n]`` each.

    Returns:
        ``rows``, their number; ``independent``, as how many independent rows they count where they have weights or
        come in groups; ``agreement``, ``reliability``, ``pit``, ``by_std`` and ``by_category``.
    """
    if isinstance(rows, HeldOutClasses):
        return class_held_out_facts(rows, schema)
    kinds = {"raw": rows.pit_raw}
    if rows.pit_calibrated is not None:
        kinds["calibrated"] = rows.pit_calibrated
    shares = rows.weights.shares
    return {
        "rows": len(rows),
        "independent": _independent(rows, np.arange(len(rows))),
        "agreement": _agreement(rows),
        "reliability": {
            "levels": [level / 100.0 for level in PERCENTILES],
            "percentiles": {kind: _below(pit, shares) for kind, pit in kinds.items()},
            "bands": {kind: _below(np.abs(2.0 * pit - 1.0), shares) for kind, pit in kinds.items()},
        },
        "pit": {kind: _histogram(pit, shares) for kind, pit in kinds.items()},
        "by_std": [_of_std(rows, part) for part in np.array_split(np.argsort(rows.std), min(GROUPS, len(rows)))],
        "by_category": _by_category(rows, schema, columns),
    }


def _independent(rows: HeldOutRows, part: NDArray[np.int64]) -> float:
    """As how many independent rows of equal weight some rows count: the units, if rows come in units."""
    shares = np.bincount(rows.weights.units[part], rows.weights.shares[part])
    return float(shares.sum() ** 2 / np.sum(shares**2))


def _agreement(rows: HeldOutRows) -> list[dict[str, Any]]:
    """Bins of the predicted mean, of equal numbers of rows: what was predicted in each, and what was observed."""
    order = np.argsort(rows.mean)
    bins = max(1, min(BINS_OF_AGREEMENT, len(rows) // FEWEST_ROWS_OF_A_BIN))
    bands = rows.band_raw if rows.band_calibrated is None else rows.band_calibrated
    found = []
    for part in np.array_split(order, bins):
        lower, upper = bands[part].mean(axis=0)
        found.append(
            {
                "rows": len(part),
                "predicted": float(rows.mean[part].mean()),
                "band": [float(lower), float(upper)],
                "observed": [float(value) for value in np.quantile(rows.targets[part], QUANTILES)],
            }
        )
    return found


def _below(values: NDArray[np.float64], shares: NDArray[np.float64]) -> list[float]:
    """Share of the values up to each of 0.01, 0.02, …, 0.99."""
    return [round(float(shares[values <= level / 100.0].sum()), 5) for level in PERCENTILES]


def _histogram(pit: NDArray[np.float64], shares: NDArray[np.float64]) -> list[float]:
    counts, _ = np.histogram(pit, PIT_BINS, (0.0, 1.0), weights=shares)
    return [round(float(count), 5) for count in counts]


def _of_std(rows: HeldOutRows, part: NDArray[np.int64]) -> dict[str, Any]:
    weights = rows.weights.shares[part]
    errors = rows.mean[part] - rows.targets[part]
    return {
        "std": [float(rows.std[part].min()), float(rows.std[part].max())],
        "rms_std": float(np.sqrt(np.average(rows.std[part] ** 2, weights=weights))),
        "rmse": float(np.sqrt(np.average(errors**2, weights=weights))),
        **_group(rows, part),
    }


def _by_category(rows: HeldOutRows, schema: Schema, columns: Columns) -> dict[str, list[dict[str, Any]]]:
    kinds = (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN)
    return {
        feature.name: [
            {
                "category": part.category,
                **({"merged": part.merged} if part.merged else {}),
                **_group(rows, part.rows),
            }
            for part in category_parts(feature, columns[feature.name])
        ]
        for feature in schema.features
        if feature.kind in kinds
    }


def _group(rows: HeldOutRows, part: NDArray[np.int64]) -> dict[str, Any]:
    """Number of rows, whether they are few, the coverage of 90 % bands, and its standard error if bands are right."""
    weights = rows.weights.shares[part]

    def coverage(pit: NDArray[np.float64] | None) -> float | None:
        if pit is None:
            return None
        return float(np.average(np.abs(2.0 * pit[part] - 1.0) <= BAND, weights=weights))

    return {
        "rows": len(part),
        "few": len(part) < FEW_ROWS,
        "raw": coverage(rows.pit_raw),
        "calibrated": coverage(rows.pit_calibrated),
        "chance": float(np.sqrt(BAND * (1.0 - BAND) / _independent(rows, part))),
    }
