"""What held-out rows say of the predictions: agreement, reliability, PIT, and coverage of parts of the rows.

Rows of the user's table in a report: the points of the scatter, and the rows that surprised the model most.

They are data of the one who trains, so they are in the page and its pictures alone, never in the stored facts, and
``--no-report-rows`` leaves them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.evaluation.class_held_out import HeldOutClasses
from murho.model.evaluation.class_metrics import accuracy_of_kept, class_reliability, confusion_matrix, scores_by_class
from murho.model.evaluation.metrics import PERCENTILES
from murho.model.evaluation.subgroups import FEW_ROWS, category_parts
from murho.model.tables.cells import format_date
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.checkpoint.spec import ModelSpec
    from murho.model.evaluation.held_out import HeldOutRows
    from murho.model.tables.schema import Columns, Feature, Schema

__all__ = [
    "class_held_out_facts",
    "class_target_facts",
    "held_out_facts",
    "shown_rows",
    "surprising_classes",
]


MOST_CLASSES = 20
"""Most classes in the confusion matrix, the most frequent ones; the others are one."""
OTHERS = "others"
KEPT = tuple(range(10, 101, 5))
"""Shares of the rows that are kept when the least certain ones are set aside, per cent."""
MOST_SURPRISING = 10


def class_target_facts(spec: ModelSpec, targets: NDArray[np.float64] | None) -> dict[str, Any]:
    """Name and classes of the target and, with its class indices ``[n]``, the number of rows of each class."""
    target, classes = spec.schema.target, spec.schema.target.classes or ()
    facts: dict[str, Any] = {"name": target.name, "unit": None, "classes": list(classes)}
    if targets is None:
        return facts
    return facts | {"counts": np.bincount(targets.astype(np.int64), minlength=len(classes)).tolist()}


def class_held_out_facts(rows: HeldOutClasses, schema: Schema) -> dict[str, Any]:
    """Summaries of held-out rows, none of which is a row.

    Args:
        rows: Predictions for n rows.
        schema: Schema of the checkpoint.

    Returns:
        ``rows``, their number; ``classes``; ``reliability``, bins of the likeliest class's probability by kind
        (``raw``, ``calibrated``); ``confusion``, with ``classes`` and ``counts``; ``kept``, the accuracy by share of
        rows kept; ``by_class``; ``sets``, the coverage of each class by nominal coverage.
    """
    classes, codes = schema.target.classes or (), rows.targets.astype(np.int64)
    shares, served = rows.weights.shares, rows.served
    predicted = served.argmax(axis=1)
    kinds = {"raw": rows.raw} | ({} if rows.calibrated is None else {"calibrated": rows.calibrated})
    certainty = -np.log(served.clip(1e-300))
    return {
        "rows": len(rows),
        "classes": list(classes),
        "reliability": {kind: _reliability(values, codes, shares) for kind, values in kinds.items()},
        "confusion": _confusion(predicted, codes, classes),
        "kept": accuracy_of_kept(predicted == codes, (served * certainty).sum(axis=1), shares, KEPT),
        "by_class": scores_by_class(predicted, codes, classes, shares),
        "sets": {
            f"{100.0 * coverage:g}": {
                name: float(np.average(held[codes == number, number], weights=shares[codes == number]))
                for number, name in enumerate(classes)
                if (codes == number).any()
            }
            for coverage, held in rows.sets.items()
        },
    }


def _reliability(
    probabilities: NDArray[np.float64], codes: NDArray[np.int64], shares: NDArray[np.float64]
) -> list[dict[str, Any]]:
    bins = class_reliability(probabilities.max(axis=1), probabilities.argmax(axis=1) == codes, shares)
    return [
        {"stated": float(stated), "observed": float(observed), "share": float(share), "rows": int(count)}
        for stated, observed, share, count in zip(bins.stated, bins.observed, bins.share, bins.rows, strict=True)
    ]


def _confusion(predicted: NDArray[np.int64], codes: NDArray[np.int64], classes: Sequence[str]) -> dict[str, Any]:
    """Rows by class and predicted class; of many classes the rarest are one."""
    counts = confusion_matrix(predicted, codes, len(classes))
    if len(classes) <= MOST_CLASSES:
        return {"classes": list(classes), "counts": counts.astype(int).tolist()}
    order = np.argsort(-counts.sum(axis=1), kind="stable")
    kept, rest = np.sort(order[: MOST_CLASSES - 1]), order[MOST_CLASSES - 1 :]
    merge = np.zeros((MOST_CLASSES, len(classes)))
    merge[np.arange(MOST_CLASSES - 1), kept] = 1.0
    merge[-1, rest] = 1.0
    names = [*(classes[number] for number in kept), OTHERS]
    return {"classes": names, "counts": (merge @ counts @ merge.T).astype(int).tolist()}


def surprising_classes(
    rows: HeldOutClasses, schema: Schema, columns: Columns, numbers: NDArray[np.int64], cell: Any
) -> list[dict[str, Any]]:
    """The rows whose own class was given the least probability.

    Args:
        rows: Predictions for n rows.
        schema: Schema of the checkpoint.
        columns: Canonical columns of these rows, ``[n]`` each.
        numbers: Number of each row in the user's table, from 1, ``[n]``.
        cell: Writes a cell of a feature: ``cell(feature, value)``.

    Returns:
        Each with ``row``, ``observed``, ``predicted``, ``probability`` of the observed class, ``certainty``, that of
        the predicted one, and ``cells``.
    """
    classes, codes = schema.target.classes or (), rows.targets.astype(np.int64)
    own = rows.served[np.arange(len(rows)), codes]

    def cells(row: int) -> dict[str, str]:
        features: tuple[Feature, ...] = schema.features
        return {feature.name: cell(feature, columns[feature.name][row]) for feature in features}

    return [
        {
            "row": int(numbers[row]),
            "observed": classes[codes[row]],
            "predicted": classes[int(rows.served[row].argmax())],
            "probability": float(own[row]),
            "certainty": float(rows.served[row].max()),
            "cells": cells(int(row)),
        }
        for row in np.argsort(own, kind="stable")[:MOST_SURPRISING]
    ]


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


MOST_POINTS = 1_000


def shown_rows(
    rows: HeldOutRows | HeldOutClasses, schema: Schema, columns: Columns, numbers: NDArray[np.int64], *, seed: int = 0
) -> dict[str, Any]:
    """The rows that a report shows.

    Args:
        rows: Predictions for n rows.
        schema: Schema of the checkpoint.
        columns: Canonical columns of these rows, ``[n]`` each.
        numbers: Number of each row in the user's table, from 1, ``[n]``.
        seed: Seed of the choice of points where there are too many.

    Returns:
        ``points``, each with ``predicted``, ``observed``, ``lower`` and ``upper``; and ``surprising``, each also with
        ``row``, ``cells`` (feature → text) and ``one_in``: one row in so many should lie as far out. Of a classifier
        there are no points, and the surprising rows are those of `class_facts.surprising_classes`.
    """
    if isinstance(rows, HeldOutClasses):
        return {"points": [], "surprising": surprising_classes(rows, schema, columns, numbers, _cell)}
    pit = rows.pit_raw if rows.pit_calibrated is None else rows.pit_calibrated
    bands = rows.band_raw if rows.band_calibrated is None else rows.band_calibrated

    def point(row: int) -> dict[str, float]:
        lower, upper = bands[row]
        return {
            "predicted": float(rows.mean[row]),
            "observed": float(rows.targets[row]),
            "lower": float(lower),
            "upper": float(upper),
        }

    chosen = np.arange(len(rows))
    if len(rows) > MOST_POINTS:
        chosen = np.sort(np.random.default_rng(seed).choice(len(rows), MOST_POINTS, replace=False))
    tails = 2.0 * np.minimum(pit, 1.0 - pit)
    furthest = np.argsort(tails, kind="stable")[:MOST_SURPRISING]
    return {
        "points": [point(int(row)) for row in chosen],
        "surprising": [
            {
                "row": int(numbers[row]),
                **point(int(row)),
                "one_in": float(1.0 / max(tails[row], 1e-9)),
                "cells": {feature.name: _cell(feature, columns[feature.name][row]) for feature in schema.features},
            }
            for row in furthest
        ],
    }


def _cell(feature: Feature, value: Any) -> str:
    if value is None or value != value:
        return "missing"
    match feature.kind:
        case FeatureKind.CATEGORICAL:
            return str(value)
        case FeatureKind.BOOLEAN:
            return "yes" if value else "no"
        case FeatureKind.DATE:
            return format_date(float(value))
        case _:
            return f"{value:.6g}"
