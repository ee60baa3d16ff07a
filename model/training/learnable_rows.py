"""The rows of a table that can be learned from: split, described by a schema, and what to tell the user about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.arrow_values import rows_of
from murho.model.data.feature import MOST_CATEGORIES
from murho.model.data.schema_inference import make_schema
from murho.model.encoding.distribution_fit import FEWEST_ROWS
from murho.model.fitting.training_data import TrainingData, select_rows
from murho.model.training.fold_advice import advise
from murho.model.training.holding_out import hold_out
from murho.model.training.row_sample import held_out_within_budget
from murho.model.training.tasks import task_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from murho.model.data.schema import Columns
    from murho.model.training.fold_advice import Advice
    from murho.model.training.options import TrainOptions
    from murho.model.training.prepared_table import PreparedTable

__all__ = ["LearnableRows", "learnable_rows"]


@dataclass(frozen=True, slots=True)
class LearnableRows:
    """The rows with a target and a weight, N.

    Attributes:
        data: Features, targets, weights and the split.
        canonical: Canonical columns of the features, and of ``--group`` and ``--time``, ``[N]`` each.
        row_numbers: Number of each row in the user's table, from 1, ``[N]``.
        left_out: How many rows of the table are none of these.
        advice: What the user may want to ask for.
    """

    data: TrainingData
    canonical: Columns
    row_numbers: NDArray[np.int64]
    left_out: int
    advice: tuple[Advice, ...]


def learnable_rows(
    prepared: PreparedTable, target: str, options: TrainOptions, say: Callable[[str], None]
) -> LearnableRows:
    """Split the rows that have a target and a weight, and describe their features.

    Args:
        prepared: The table.
        target: The predicted column.
        options: Validated options.
        say: Gets a line for each thing that the user should know.

    Raises:
        TableError: The table can't be used; file, column and row are named.
    """
    task = task_of(prepared.plan.target)
    limits = task.limits(prepared.targets, target, options, say)
    rows = _labelled(prepared, target, options, say)
    row_numbers = (rows if prepared.rows is None else prepared.rows[rows]) + 1
    table, targets = rows_of(prepared.table, rows), prepared.targets[rows]
    columns = select_rows(prepared.columns, rows)
    holding_out = hold_out(table, target, columns, options, held_out_within_budget(prepared, options))
    split = holding_out.split
    for note in (*holding_out.notes, split.describe()):
        say(note)
    advice: tuple[Advice, ...] = ()
    ranked = task.class_count is None or task.class_count == 2  # the ranks of more classes mean nothing
    if ranked and not options.group and not options.time:
        advice = tuple(advise(table, prepared.plan, columns, targets))
    for piece in advice:
        say(f"advice: {piece.message}")
    impute = options.missing == "accept" and len(split.learned) >= FEWEST_ROWS
    schema = make_schema(prepared.plan, select_rows(columns, split.learned), holding_out.ahead, impute=impute)
    for feature in schema.features:
        if len(feature.categories) == MOST_CATEGORIES:
            say(
                f"column {feature.name!r}: its {MOST_CATEGORIES} most frequent categories are told apart; rarer ones, "
                "if any, are one"
            )
    weights = None
    if prepared.weights is not None:
        weights = prepared.weights[rows]
        weights = weights / weights[split.learned].mean()
    return LearnableRows(
        data=TrainingData(schema, columns, targets, split, weights, limits),
        canonical={**columns, **holding_out.columns},
        row_numbers=row_numbers,
        left_out=len(prepared.targets) - len(rows),
        advice=advice,
    )


def _labelled(
    prepared: PreparedTable, target: str, options: TrainOptions, say: Callable[[str], None]
) -> NDArray[np.int64]:
    """Indices of the rows with a target and a weight, ascending."""
    every = len(prepared.targets)
    rows = np.flatnonzero(~np.isnan(prepared.targets))
    if len(rows) < every:
        say(f"left out {every - len(rows)} of {every} rows: {target!r} is missing")
    if prepared.weights is not None:
        weighty = rows[prepared.weights[rows] > 0.0]
        if len(weighty) < len(rows):
            say(f"left out {len(rows) - len(weighty)} of {every} rows: their weight {options.weight!r} is 0")
        rows = weighty
    return rows
