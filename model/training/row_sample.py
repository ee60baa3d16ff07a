"""Which rows a training with a short budget learns from: a sample, where the table has more than it can use.

A fit must see its rows several times, and so must the validations and the calibration. Seconds that are too few for
that are better spent on fewer rows; memory is saved, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.arrow_values import rows_of
from murho.model.data.splits import MOST_HELD_OUT
from murho.model.training.quick import default_budget, quick_budget

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.training.options import TrainOptions
    from murho.model.training.prepared_table import PreparedTable

__all__ = ["held_out_within_budget", "rows_for_budget", "rows_within_budget"]

FEWEST_ROWS = 20_000
ROWS_A_SECOND = 500
"""Rows that one second of a budget is enough for."""
FEWEST_HELD_OUT = 2_000
HELD_OUT_A_SECOND = 40
"""Rows that judge the fits and calibrate, for each second; each takes some milliseconds in all."""
FEWEST_OF_A_CLASS = 50
"""Rows of a class that are taken first: a class without a row could not be learned."""
SAMPLE_SEED = 40
"""Added to the seed of the training."""


def rows_within_budget(rows: int, options: TrainOptions) -> int:
    """How many of a table's rows a training uses: all of them without ``--budget`` and ``--quick``.

    Args:
        rows: Rows with a target, N.
        options: Options of the training. The seconds of a quick one are reference seconds, those of a budget are the
            user's number: neither depends on the machine.
    """
    if options.budget is None and not options.quick:
        return rows
    return min(rows, max(FEWEST_ROWS, round(ROWS_A_SECOND * _seconds(rows, options))))


def held_out_within_budget(prepared: PreparedTable, options: TrainOptions) -> int:
    """Most rows that judge and calibrate: fewer than `MOST_HELD_OUT` where the rows are a sample."""
    if prepared.rows is None:
        return MOST_HELD_OUT
    seconds = _seconds(len(prepared.targets), options)
    return min(MOST_HELD_OUT, max(FEWEST_HELD_OUT, round(HELD_OUT_A_SECOND * seconds)))


def _seconds(rows: int, options: TrainOptions) -> float:
    return options.budget or quick_budget(default_budget(rows))


def rows_for_budget(prepared: PreparedTable, options: TrainOptions) -> PreparedTable:
    """The rows that the budget is enough for, in the order of the table; ``prepared`` itself if these are all.

    They are drawn at random among the rows with a target, by the seed of the training, and a note says so.

    Args:
        prepared: The table, N rows.
        options: Options of the training.
    """
    if prepared.rows is not None:
        return prepared
    usable = ~np.isnan(prepared.targets)
    if prepared.weights is not None:
        usable &= prepared.weights > 0.0
    labelled = np.flatnonzero(usable)
    count = rows_within_budget(len(labelled), options)
    if count == len(labelled):
        return prepared
    order = np.random.default_rng(options.seed + SAMPLE_SEED).permutation(labelled)
    if prepared.plan.target.classes is not None:
        order = _rare_classes_first(order, prepared.targets[order])
    rows = np.sort(order[:count])
    note = f"learns from {count:,} of {len(labelled):,} rows, drawn at random: what the time is enough for"
    return replace(
        prepared,
        given=rows_of(prepared.given, rows),
        table=rows_of(prepared.table, rows),
        targets=prepared.targets[rows],
        weights=None if prepared.weights is None else prepared.weights[rows],
        notes=(*prepared.notes, note),
        rows=rows,
    )


def _rare_classes_first(order: NDArray[np.int64], classes: NDArray[np.float64]) -> NDArray[np.int64]:
    """The same rows, the first `FEWEST_OF_A_CLASS` of each class before all others."""
    first = np.zeros(len(order), dtype=bool)
    for label in np.unique(classes):
        first[np.flatnonzero(classes == label)[:FEWEST_OF_A_CLASS]] = True
    return np.concatenate((order[first], order[~first]))
