"""The rows of a table that can be learned from: features, targets, weights and split, and what to tell the user.

A short budget takes a sample of a large table. A fit must see its rows several times, and so must the validations and
the calibration. Seconds that are too few for that are better spent on fewer rows; memory is saved, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.bbb.rows import TrainingData, select_rows
from murho.model.encoding.distribution_fit import FEWEST_ROWS
from murho.model.errors import OptionError
from murho.model.tables.columns import canonical_column, rows_of
from murho.model.tables.inference import hints_of_table, infer_column
from murho.model.tables.schema import MOST_CATEGORIES, FeatureKind
from murho.model.tables.schema_inference import (
    make_schema,
    require_column,
)
from murho.model.tables.splits import MOST_HELD_OUT, ROW_ORDER, Split, find_units, split_in_time, split_rows
from murho.model.training.prepared_table import PreparedTable, held_out_within_budget
from murho.model.training.tasks import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.tables.schema import Columns
    from murho.model.training.options import TrainOptions

__all__ = [
    "HoldingOut",
    "LearnableRows",
    "hold_out",
    "learnable_rows",
]


FEW_GROUPS = 10
"""With fewer groups the 90 % band of a new group is more than the groups can tell."""


@dataclass(frozen=True, slots=True)
class HoldingOut:
    """The split of a table, and the columns that it was made from.

    Attributes:
        split: The split.
        columns: Canonical column of each ``--group`` and ``--time`` column, ``[N]``.
        ahead: Time column → how far ahead rows were judged; empty without ``--time``.
        notes: What to tell the user, one line each.
    """

    split: Split
    columns: Mapping[str, NDArray[Any]]
    ahead: Mapping[str, float]
    notes: tuple[str, ...]


def hold_out(
    table: pa.Table,
    target: str,
    columns: Columns,
    options: TrainOptions,
    most_held_out: int = MOST_HELD_OUT,
) -> HoldingOut:
    """Split the rows of a table as the options say.

    Args:
        table: The rows with a target, N.
        target: The predicted column.
        columns: Canonical columns of the features, ``[N]`` each.
        options: Options of the training.
        most_held_out: Most rows that judge and calibrate.

    Raises:
        TableError: A column of an option is not in the table.
        OptionError: A column of an option is the target, or can't be used as the option says.
    """
    if options.time is not None:
        return _in_time(table, target, options.time, options, most_held_out)
    groups = {name: _column(table, name, "--group", target, options)[1] for name in options.group}
    units = find_units(columns, groups)
    split = split_rows(table.num_rows, options.seed, options.members, units, most_held_out=most_held_out)
    notes = list(units.notes)
    if units.grouped and units.count < FEW_GROUPS:
        notes.append(
            f"only {units.count} groups: bands above {100 * units.count // (units.count + 1)} % are more than so few "
            "can tell, and are drawn by the widths of those below"
        )
    return HoldingOut(split, groups, {}, tuple(notes))


def _in_time(table: pa.Table, target: str, name: str, options: TrainOptions, most_held_out: int) -> HoldingOut:
    if name == ROW_ORDER and name not in table.column_names:
        times = np.arange(table.num_rows, dtype=np.float64)
        return HoldingOut(split_in_time(times, options.members, most_held_out=most_held_out), {}, {}, ())
    kind, times = _column(table, name, "--time", target, options)
    if kind not in (FeatureKind.NUMERIC, FeatureKind.DATE):
        raise OptionError(f"--time {name}: the column must have dates or numbers, not {kind} cells")
    split = split_in_time(times, options.members, most_held_out=most_held_out)
    missing = int(np.isnan(times).sum())
    notes = (f"column {name!r}: {missing} cells are missing; these rows count as old",) if missing else ()
    return HoldingOut(split, {name: times}, {name: split.ahead}, notes)


def _column(
    table: pa.Table, name: str, option: str, target: str, options: TrainOptions
) -> tuple[FeatureKind, NDArray[Any]]:
    """Kind and canonical column of an option's column."""
    require_column(table, name, f"the {option} column")
    if name == target:
        raise OptionError(f"{option} {name}: this is the target; give another column")
    column = table.column(name)
    given = options.columns.get(name)
    hints = hints_of_table(table, decimal=options.decimal, day_first=options.day_first, skip=options.ignore)
    inference = infer_column(column, name, None if given is None else given.kind, hints)
    return inference.kind, canonical_column(column, inference.kind, name, inference.reading)


@dataclass(frozen=True, slots=True)
class LearnableRows:
    """The rows with a target and a weight, N.

    Attributes:
        data: Features, targets, weights and the split.
        canonical: Canonical columns of the features, and of ``--group`` and ``--time``, ``[N]`` each.
        row_numbers: Number of each row in the user's table, from 1, ``[N]``.
        left_out: How many rows of the table are none of these.
    """

    data: TrainingData
    canonical: Columns
    row_numbers: NDArray[np.int64]
    left_out: int


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
    task = task_of(prepared.plan.schema.target)
    limits = task.limits(prepared.targets, target, options, say)
    rows = _labelled(prepared, target, options, say)
    row_numbers = (rows if prepared.rows is None else prepared.rows[rows]) + 1
    table, targets = rows_of(prepared.table, rows), prepared.targets[rows]
    columns = select_rows(prepared.columns, rows)
    holding_out = hold_out(table, target, columns, options, held_out_within_budget(prepared, options))
    split = holding_out.split
    for note in (*holding_out.notes, split.describe()):
        say(note)
    impute = options.missing == "accept" and len(split.learned) >= FEWEST_ROWS
    schema = make_schema(prepared.plan.schema, select_rows(columns, split.learned), holding_out.ahead, impute=impute)
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
