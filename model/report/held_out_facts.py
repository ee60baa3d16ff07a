"""What held-out rows say of the predictions, for the stored facts, and the rows that a page shows.

The facts are summaries: agreement, reliability, and coverage of parts of the rows. Rows of the user's table, the points
of the scatter and those that surprised the model most, are data of the one who trains: they are in the page and its
pictures alone, never in the stored facts, and ``--no-report-rows`` leaves them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.evaluation.class_held_out import HeldOutClasses
from murho.model.evaluation.class_metrics import accuracy_of_kept, class_reliability, confusion_matrix, scores_by_class
from murho.model.evaluation.metrics import PERCENTILES
from murho.model.evaluation.subgroups import category_parts
from murho.model.tables.cells import format_date
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.evaluation.held_out import HeldOutRows
    from murho.model.evaluation.subgroups import CategoryRows
    from murho.model.tables.schema import Columns, Feature, Schema

__all__ = [
    "GROUPED_KINDS",
    "held_out_facts",
    "part_name",
    "shown_rows",
]

GROUPED_KINDS = (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN)
"""Kinds of features whose parts are categories."""
PIT_BINS = 20
GROUPS = 10
BINS_OF_AGREEMENT = 15
FEWEST_ROWS_OF_A_BIN = 10
QUANTILES = (0.05, 0.5, 0.95)
BAND = 0.9
MOST_CLASSES = 20
"""Most classes in the confusion matrix, the most frequent ones; the others are one."""
KEPT = tuple(range(10, 101, 5))
"""Shares of the rows that are kept when the least certain ones are set aside, per cent."""
MOST_SURPRISING = 10
MOST_POINTS = 1_000


def held_out_facts(rows: HeldOutRows | HeldOutClasses, schema: Schema, columns: Columns) -> dict[str, Any]:
    """Summaries of held-out rows, none of which is a row.

    Args:
        rows: Predictions for n rows.
        schema: Schema of the checkpoint.
        columns: Canonical columns of these rows, ``[n]`` each.

    Returns:
        ``rows``, their number. Of numbers also ``independent``, as how many independent rows they count where they
        have weights or come in groups; ``agreement``, ``reliability``, ``pit``, ``by_std`` and ``by_category``. Of
        classes ``reliability``, bins of the likeliest class's probability by kind (``raw``, ``calibrated``);
        ``confusion``, with ``classes`` and ``counts``; ``kept``, the accuracy by share of rows kept; and ``by_class``,
        with ``in_set``, how often the 90 % prediction sets hold the class.
    """
    return _of_classes(rows, schema) if isinstance(rows, HeldOutClasses) else _of_numbers(rows, schema, columns)


def _of_numbers(rows: HeldOutRows, schema: Schema, columns: Columns) -> dict[str, Any]:
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
        "pit": {
            kind: np.histogram(pit, PIT_BINS, (0.0, 1.0), weights=shares)[0].tolist() for kind, pit in kinds.items()
        },
        "by_std": [_of_std(rows, part) for part in np.array_split(np.argsort(rows.std), min(GROUPS, len(rows)))],
        "by_category": {
            feature.name: [
                {**part_name(part), **_group(rows, part.rows)}
                for part in category_parts(feature, columns[feature.name])
            ]
            for feature in schema.features
            if feature.kind in GROUPED_KINDS
        },
    }


def part_name(part: CategoryRows) -> dict[str, Any]:
    """``category``, None for missing cells, and ``merged``, the number of small categories that are one part."""
    return {"category": part.category} | ({"merged": part.merged} if part.merged else {})


def _independent(rows: HeldOutRows, part: NDArray[np.int64]) -> float:
    """As how many independent rows of equal weight some rows count: the units, if rows come in units."""
    shares = np.bincount(rows.weights.units[part], rows.weights.shares[part])
    return float(shares.sum() ** 2 / np.sum(shares**2))


def _bands(rows: HeldOutRows) -> NDArray[np.float64]:
    """Ends of the 90 % bands that answers give, ``[n, 2]``."""
    return rows.band_raw if rows.band_calibrated is None else rows.band_calibrated


def _agreement(rows: HeldOutRows) -> list[dict[str, Any]]:
    """Bins of the predicted mean, of equal numbers of rows: what was predicted in each, and what was observed."""
    bins = max(1, min(BINS_OF_AGREEMENT, len(rows) // FEWEST_ROWS_OF_A_BIN))
    return [
        {
            "rows": len(part),
            "predicted": float(rows.mean[part].mean()),
            "band": _bands(rows)[part].mean(axis=0).tolist(),
            "observed": np.quantile(rows.targets[part], QUANTILES).tolist(),
        }
        for part in np.array_split(np.argsort(rows.mean), bins)
    ]


def _below(values: NDArray[np.float64], shares: NDArray[np.float64]) -> list[float]:
    """Share of the values up to each of 0.01, 0.02, …, 0.99."""
    return [float(shares[values <= level / 100.0].sum()) for level in PERCENTILES]


def _of_std(rows: HeldOutRows, part: NDArray[np.int64]) -> dict[str, Any]:
    weights = rows.weights.shares[part]
    errors = rows.mean[part] - rows.targets[part]
    return {
        "rms_std": float(np.sqrt(np.average(rows.std[part] ** 2, weights=weights))),
        "rmse": float(np.sqrt(np.average(errors**2, weights=weights))),
        **_group(rows, part),
    }


def _group(rows: HeldOutRows, part: NDArray[np.int64]) -> dict[str, Any]:
    """Number of rows, the coverage of 90 % bands, and its standard error if bands are right."""
    weights = rows.weights.shares[part]

    def coverage(pit: NDArray[np.float64] | None) -> float | None:
        if pit is None:
            return None
        return float(np.average(np.abs(2.0 * pit[part] - 1.0) <= BAND, weights=weights))

    return {
        "rows": len(part),
        "raw": coverage(rows.pit_raw),
        "calibrated": coverage(rows.pit_calibrated),
        "chance": float(np.sqrt(BAND * (1.0 - BAND) / _independent(rows, part))),
    }


def _of_classes(rows: HeldOutClasses, schema: Schema) -> dict[str, Any]:
    classes, codes = schema.target.classes or (), rows.targets.astype(np.int64)
    shares, served = rows.weights.shares, rows.served
    predicted = served.argmax(axis=1)
    kinds = {"raw": rows.raw} | ({} if rows.calibrated is None else {"calibrated": rows.calibrated})
    entropy = -(served * np.log(served.clip(1e-300))).sum(axis=1)
    by_class = scores_by_class(predicted, codes, classes, shares)
    held = rows.sets.get(BAND)
    for number, scores in enumerate(by_class.values()):
        own = codes == number
        scores["in_set"] = (
            None if held is None or not own.any() else float(np.average(held[own, number], weights=shares[own]))
        )
    return {
        "rows": len(rows),
        "reliability": {kind: _reliability(values, codes, shares) for kind, values in kinds.items()},
        "confusion": _confusion(predicted, codes, classes),
        "kept": accuracy_of_kept(predicted == codes, entropy, shares, KEPT),
        "by_class": by_class,
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
    names = list(classes)
    if len(classes) > MOST_CLASSES:
        order = np.argsort(-np.bincount(codes, minlength=len(classes)), kind="stable")
        kept = np.sort(order[: MOST_CLASSES - 1])
        names = [*(classes[number] for number in kept), "others"]
        places = np.full(len(classes), MOST_CLASSES - 1)
        places[kept] = np.arange(MOST_CLASSES - 1)
        predicted, codes = places[predicted], places[codes]
    return {"classes": names, "counts": confusion_matrix(predicted, codes, len(names)).astype(int).tolist()}


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
        ``points``, each with ``predicted``, ``observed``, ``lower`` and ``upper``; of classes there are none. And
        ``surprising``: the rows furthest out in their predicted distributions, or those whose own class was given the
        least probability. Each has ``row``, ``cells`` (feature → text), ``observed`` and ``predicted``. Of
        numbers it also has the band and ``one_in``: one row in so many should lie as far out. Of classes it has
        ``probability``, of the observed class, and ``certainty``, of the predicted one.
    """
    every = np.arange(len(rows))
    if isinstance(rows, HeldOutClasses):
        classes, codes = schema.target.classes or (), rows.targets.astype(np.int64)
        rarity, chosen = rows.served[every, codes], every[:0]

        def told(row: int) -> dict[str, Any]:
            likeliest = int(rows.served[row].argmax())
            return {
                "observed": classes[codes[row]],
                "predicted": classes[likeliest],
                "probability": float(rarity[row]),
                "certainty": float(rows.served[row, likeliest]),
            }

    else:
        pit = rows.pit_raw if rows.pit_calibrated is None else rows.pit_calibrated
        bands, rarity, chosen = _bands(rows), 2.0 * np.minimum(pit, 1.0 - pit), every
        if len(rows) > MOST_POINTS:
            chosen = np.sort(np.random.default_rng(seed).choice(len(rows), MOST_POINTS, replace=False))

        def told(row: int) -> dict[str, Any]:
            return {
                "observed": float(rows.targets[row]),
                "predicted": float(rows.mean[row]),
                "lower": float(bands[row, 0]),
                "upper": float(bands[row, 1]),
                "one_in": float(1.0 / max(rarity[row], 1e-9)),
            }

    return {
        "points": [told(row) for row in chosen.tolist()],
        "surprising": [
            {
                "row": int(numbers[row]),
                "cells": {feature.name: _cell(feature, columns[feature.name][row]) for feature in schema.features},
                **told(row),
            }
            for row in np.argsort(rarity, kind="stable")[:MOST_SURPRISING].tolist()
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
