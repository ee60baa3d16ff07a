"""What a report says of a classifier: classes of the table, and how good held-out probabilities are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.evaluation.class_confusion import confusion_matrix, scores_by_class
from murho.model.evaluation.class_reliability import class_reliability
from murho.model.evaluation.selective_accuracy import accuracy_of_kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.data.schema import Columns, Feature, Schema
    from murho.model.evaluation.class_held_out import HeldOutClasses
    from murho.model.posterior.model_spec import ModelSpec

__all__ = ["class_held_out_facts", "class_target_facts", "surprising_classes"]

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
