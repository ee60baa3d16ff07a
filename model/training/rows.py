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
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.bbb.rows import TrainingData, select_rows
from murho.model.encoding.distribution_fit import FEWEST_ROWS
from murho.model.encoding.encoder import MIXED
from murho.model.errors import OptionError, TableError
from murho.model.tables.columns import canonical_column, is_missing, rows_of
from murho.model.tables.data_report import describe_table, from_other_rows, ranks
from murho.model.tables.inference import NO_HINTS, hints_of_table, infer_column
from murho.model.tables.schema import MOST_CATEGORIES, FeatureKind
from murho.model.tables.schema_inference import (
    IGNORED,
    classes_of,
    columns_from_table,
    holds_classes,
    labels_from_table,
    make_schema,
    plan_columns,
    read_targets,
    require_column,
    row_weights,
)
from murho.model.tables.splits import MOST_HELD_OUT, ROW_ORDER, Split, find_units, split_in_time, split_rows
from murho.model.training.options import default_budget, flag, quick_budget
from murho.model.training.tasks import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.tables.data_report import DataReport
    from murho.model.tables.inference import ReadingHints
    from murho.model.tables.schema import Columns
    from murho.model.tables.schema_inference import ColumnPlan
    from murho.model.training.options import TrainOptions

__all__ = [
    "Advice",
    "HoldingOut",
    "LearnableRows",
    "PreparedTable",
    "advise",
    "choose_classes",
    "held_out_within_budget",
    "hold_out",
    "learnable_rows",
    "left_out_groups",
    "prepare_table",
    "rows_for_budget",
    "rows_within_budget",
    "say_if_few_numbers",
]


OF_NUMBERS = {
    "noise": "auto",
    "noise_sigma": None,
    "transform": "auto",
    "target_minimum": None,
    "target_maximum": None,
}
"""Options that only numbers have, and the values that say nothing."""
FEW_ROWS_OF_A_CLASS = 10
SHOWN = 12
FEW_NUMBERS = 10
"""A number with at most so many different values may be meant as classes, so the user is told how to say so."""


def choose_classes(
    table: pa.Table,
    target: str,
    options: TrainOptions,
    say: Callable[[str], None],
    hints: ReadingHints = NO_HINTS,
) -> tuple[str, ...] | None:
    """The classes of a training's target, sorted; None: it is predicted as a number.

    It is what ``--task`` says, else classes for text and truth values.

    Args:
        table: The table.
        target: The predicted column.
        options: Options of the training.
        say: Gets what the user should know about the choice.
        hints: What decides where cells leave open how they are to be read.

    Raises:
        TableError: The target doesn't exist, or has fewer than two classes, or too many.
        OptionError: An option of numbers is given for classes, or the target's declared kind fits no task.
    """
    require_column(table, target, "the target")
    declared = options.columns[target].kind if target in options.columns else None
    classes = options.task == "classification"
    if options.task == "auto":
        of_kind = {FeatureKind.CATEGORICAL: True, FeatureKind.BOOLEAN: True, FeatureKind.NUMERIC: False}
        classes = of_kind[declared] if declared in of_kind else holds_classes(table, target, hints)
    if not classes:
        if options.task == "regression" and holds_classes(table, target, hints):
            raise TableError(
                f"the target {target!r} is text or truth values, not numbers: leave out --task regression to predict "
                "its classes"
            )
        if options.encoding == MIXED:
            raise OptionError(
                f"--encoding {MIXED} is for classes, and {target!r} is a number: give auto, standard or piecewise"
            )
        return None
    if declared is FeatureKind.NUMERIC and options.task == "classification":
        raise OptionError(f"--task classification: the column {target!r} is declared numeric; declare it categorical")
    labels = labels_from_table(table, target)
    found = classes_of(labels, target)
    _require_options(options, len(found))
    _describe(labels, target, say)
    return found


def _require_options(options: TrainOptions, classes: int) -> None:
    """Check that no option is given that only numbers have."""
    given = [name for name, value in OF_NUMBERS.items() if getattr(options, name) != value]
    if given:
        raise OptionError(
            f"{flag(given[0])} is for a target that is a number; this one has {classes} classes: leave it out, or give "
            "--task regression if the target is a number"
        )


def _describe(labels: NDArray[np.object_], target: str, say: Callable[[str], None]) -> None:
    """Tell the user how many rows each class has, and which classes have too few to be learned well."""
    counts = Counter(label for label in labels.tolist() if label is not None)
    listed = ", ".join(f"{name!r} {count:,}" for name, count in counts.most_common(SHOWN))
    more = f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    say(f"the target {target!r} has {len(counts)} classes, with rows: {listed}{more}")
    rare = {name: count for name, count in counts.items() if count < FEW_ROWS_OF_A_CLASS}
    if rare:
        shown = ", ".join(f"{name!r} ({count})" for name, count in sorted(rare.items())[:SHOWN])
        say(
            f"classes with fewer than {FEW_ROWS_OF_A_CLASS} rows: {shown}{', …' if len(rare) > SHOWN else ''}; "
            "their probabilities rest on little"
        )


def say_if_few_numbers(targets: NDArray[np.float64], target: str, say: Callable[[str], None]) -> None:
    """Tell the user how to predict classes where a number has few different values.

    Args:
        targets: ``[N]``, NaN where missing.
        target: Name of the target.
        say: Gets the message.
    """
    numbers = np.unique(targets[~np.isnan(targets)])
    if 1 < len(numbers) <= FEW_NUMBERS and len(numbers) ** 2 < len(targets):
        shown = ", ".join(f"{number:g}" for number in numbers)
        say(
            f"the target {target!r} has {len(numbers)} different numbers ({shown}): it is predicted as a number; "
            "--task classification predicts a probability of each instead"
        )


@dataclass(frozen=True, eq=False)
class PreparedTable:
    """A table, and what was inferred of it.

    Attributes:
        given: The table as it was given, N rows.
        table: The same without the column of weights.
        plan: Features, target and columns left out.
        targets: ``[N]``, the target's unit or class indices; NaN where missing.
        weights: Weights of the rows, ``[N]``; None if all are equal.
        weight: The column of weights, or None.
        notes: What the user should know about the choice of a number or of classes, a line each.
        rows: Index of each row in the file, ascending, where these are a sample of its rows; None: they are all.
    """

    given: pa.Table
    table: pa.Table
    plan: ColumnPlan
    targets: NDArray[np.float64]
    weights: NDArray[np.float64] | None
    weight: str | None
    notes: tuple[str, ...] = ()
    rows: NDArray[np.int64] | None = None

    @cached_property
    def columns(self) -> Columns:
        """Canonical columns of the features, ``[N]`` each; made when they are asked for, so that a sample is enough."""
        return columns_from_table(self.table, self.plan)

    def left_out_lines(self) -> list[str]:
        """A line for each column that is no feature, with the reason."""
        return [f"left out column {column!r}: {reason}" for column, reason in self.plan.left_out.items()]

    def report(self) -> DataReport:
        """The data report."""
        return describe_table(self.given, self.plan, self.targets, weight=self.weight)


def left_out_groups(options: TrainOptions) -> tuple[str, ...]:
    """The group columns that are no features."""
    return () if options.keep_groups else options.group


def prepare_table(table: pa.Table, target: str, options: TrainOptions) -> PreparedTable:
    """Infer features, targets and weights.

    Args:
        table: The table, as `model.tables.files.read_table` or `model.tables.files.open_table` returns it.
        target: The predicted column.
        options: Validated options.

    Raises:
        TableError: The table can't be used; column and row are named.
        OptionError: An option names a column that is not there or can't be used so.
    """
    given, weights = table, None
    if options.weight is not None:
        weights = row_weights(table, options.weight, target=target)
        table = table.drop_columns([options.weight])
    said: list[str] = []
    ignored = [name for name in options.ignore if name != options.weight]
    hints = hints_of_table(table, decimal=options.decimal, day_first=options.day_first, skip=ignored)
    classes = choose_classes(table, target, options, said.append, hints)
    plan = plan_columns(
        table,
        target,
        ignore=ignored,
        groups=left_out_groups(options),
        overrides={name: given for name, given in options.columns.items() if name != options.weight},
        classes=classes,
        hints=hints,
    )
    targets = read_targets(table, plan.target)
    if classes is None and options.task == "auto":
        say_if_few_numbers(targets, target, said.append)
    return PreparedTable(given, table, plan, targets, weights, options.weight, tuple(said))


FEWEST_SAMPLED_ROWS = 20_000
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
    return min(rows, max(FEWEST_SAMPLED_ROWS, round(ROWS_A_SECOND * _seconds(rows, options))))


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
