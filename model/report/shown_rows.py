"""Rows of the user's table in a report: the points of the scatter, and the rows that surprised the model most.

They are data of the one who trains, so they are in the page and its pictures alone, never in the stored facts, and
``--no-report-rows`` leaves them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.cells import format_date
from murho.model.data.schema import FeatureKind
from murho.model.evaluation.class_held_out import HeldOutClasses
from murho.model.report.class_facts import surprising_classes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns, Feature, Schema
    from murho.model.evaluation.held_out_rows import HeldOutRows

__all__ = ["shown_rows"]

MOST_POINTS = 1_000
MOST_SURPRISING = 10


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
