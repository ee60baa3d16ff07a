"""The rows of a table that can be learned from: features, targets, weights and split, and what to tell the user.

A short budget takes a sample of a large table. A fit must see its rows several times, and so must the validations and
the calibration. Seconds that are too few for that are better spent on fewer rows; memory is saved, too.

Advice names columns by which a table should perhaps be held out. Rows held out at random say how good the answers are
with other rows of the same group learned from, and rows from before and after. Where new groups or later rows will be
asked for, that says too much. So a column that looks like groups or like time is named if the other rows of a group, or
the rows before and after, tell the target. Only the user knows what will be asked for.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.bbb.rows import TrainingData, select_rows
from murho.model.encoding.distribution_fit import FEWEST_ROWS
from murho.model.errors import OptionError, TableError
from murho.model.tables.columns import canonical_column, is_missing, rows_of
from murho.model.tables.data_report import from_other_rows, ranks
from murho.model.tables.inference import hints_of_table, infer_column
from murho.model.tables.schema import MOST_CATEGORIES, FeatureKind
from murho.model.tables.schema_inference import (
    IGNORED,
    make_schema,
    require_column,
)
from murho.model.tables.splits import MOST_HELD_OUT, ROW_ORDER, Split, find_units, split_in_time, split_rows
from murho.model.training.prepared_table import PreparedTable, held_out_within_budget
from murho.model.training.tasks import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.tables.schema import Columns
    from murho.model.tables.schema_inference import ColumnPlan
    from murho.model.training.options import TrainOptions

__all__ = [
    "Advice",
    "HoldingOut",
    "LearnableRows",
    "advise",
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


FEWEST_ADVISED_ROWS, FEWEST_GROUPS, FEWEST_TIMES = 100, 10, 21
TELLS = 0.3
"""Least correlation of the targets with what other rows tell. By chance it is 0 or less: no row counts for itself."""
_IDENTIFIERS = re.compile(
    r"(?:^|[_\s.-])(?:id|ids|no|nr|num|number|code|key|uid|uuid|subject|patient|person|customer|user|client|member)$"
    r"|(?-i:(?<=[a-z])(?:I[dD]|No|Nr|Code)$)|^(?:id|zip|zipcode|postcode|plz)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice.

    Attributes:
        option: The option to give, such as ``--group patient``.
        correlation: Of the targets' ranks with those that other rows of the same group, or next in time, tell.
        message: The advice in words.
    """

    option: str
    correlation: float
    message: str

    def to_json(self) -> dict[str, Any]:
        """For ``model.json``."""
        return {"option": self.option, "correlation": self.correlation, "message": self.message}


def advise(table: pa.Table, plan: ColumnPlan, columns: Columns, targets: NDArray[np.float64]) -> list[Advice]:
    """Name columns whose values tell the target beyond the row itself.

    Args:
        table: The rows with a target, N, with the columns that are no features.
        plan: The features of the table.
        columns: Canonical columns of the features, ``[N]`` each.
        targets: Targets, ``[N]``.

    Returns:
        The advice, the most urgent first; empty for fewer than 100 rows.
    """
    if len(targets) < FEWEST_ADVISED_ROWS:
        return []
    order, found = ranks(targets), []
    for name, kind, column in _columns(table, plan, columns):
        present = ~is_missing(column)
        values = len(set(column[present].tolist()))
        if kind is FeatureKind.DATE and values >= FEWEST_TIMES:
            option, what = "time", "matters like time: rows before and after a row tell about it. If later rows"
        elif _may_group(name, kind, column[present]) and FEWEST_GROUPS <= values <= present.sum() / 2:
            option, alike = "group", f"{values} values, and rows of the same value tell about each other"
            what = f"looks like groups: {alike}. If rows of new values"
        else:
            continue
        told = from_other_rows(column[present], order[present], ordered=option == "time")
        correlation = float(np.corrcoef(told, order[present])[0, 1]) if np.ptp(told) > 0.0 else 0.0
        if correlation >= TELLS:
            given = f"--{option} {shlex.quote(name)}"
            found.append(Advice(given, correlation, f"column {name!r} {what} will be asked for, give {given}"))
    return sorted(found, key=lambda advice: -advice.correlation)


def _columns(table: pa.Table, plan: ColumnPlan, features: Columns) -> Iterator[tuple[str, FeatureKind, NDArray[Any]]]:
    """The features, and the columns that are none because the user has said so."""
    for name, column in features.items():
        yield name, plan.kinds[name], column
    for name in (name for name, reason in plan.left_out.items() if reason == IGNORED):
        try:
            inference = infer_column(table.column(name), name, None, plan.hints)
            column = canonical_column(table.column(name), inference.kind, name, inference.reading)
        except TableError:
            continue
        yield name, inference.kind, column


def _may_group(name: str, kind: FeatureKind, present: NDArray[Any]) -> bool:
    """Texts may name groups; whole numbers only under the name of an identifier: an hour is a quantity."""
    if kind is FeatureKind.CATEGORICAL:
        return True
    whole = kind is FeatureKind.NUMERIC and bool((present == np.rint(present)).all())
    return whole and _IDENTIFIERS.search(name) is not None


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
