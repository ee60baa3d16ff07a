"""The table of a training, before any row is learned from: its classes and schema, and as many rows as fit the budget.

A mistake in a table or an option is told from here, before PyTorch is imported.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from murho.model.errors import OptionError, TableError
from murho.model.seeds import seed_for
from murho.model.tables.columns import rows_of
from murho.model.tables.data_report import DataReport, describe_table
from murho.model.tables.inference import hints_of_table, misfits_of
from murho.model.tables.overrides import composed
from murho.model.tables.readings import NO_HINTS, ReadingHints
from murho.model.tables.schema import Columns, FeatureKind
from murho.model.tables.schema_inference import (
    ColumnPlan,
    classes_of,
    columns_from_table,
    infer_task,
    labels_from_table,
    plan_columns,
    read_targets,
    require_column,
    row_weights,
)
from murho.model.tables.splits import MOST_HELD_OUT
from murho.model.training.leak_check import check_leaks
from murho.model.training.options import TrainOptions, flag, quick_budget

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
    """Return the classes of a training's target, sorted; None: it is predicted as a number.

    It is what ``--task`` says, else classes for text, truth values, and numbers that are 0 or 1 alone.

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
    of_words, of_bits = (False, False) if classes else infer_task(table.column(target), target, hints)
    if options.task == "auto":
        of_kind = {FeatureKind.CATEGORICAL: True, FeatureKind.BOOLEAN: True, FeatureKind.NUMERIC: False}
        classes = of_words if declared is None else of_kind.get(declared, of_words)
        if declared is None and of_bits:
            classes = True
            say(f"the target {target!r} is 0 or 1: classes; --task regression predicts a number")
    if not classes:
        if options.task == "regression" and of_words:
            raise TableError(
                f"the target {target!r} is text or truth values, not numbers: leave out --task regression to predict "
                "its classes"
            )
        if options.encoding == "mixed":
            raise OptionError(
                f"--encoding mixed is for classes, and {target!r} is a number: give auto, standard or piecewise"
            )
        return None
    if declared is FeatureKind.NUMERIC:
        raise OptionError(f"--task classification: the column {target!r} is declared numeric; declare it categorical")
    labels = labels_from_table(table, target, hints.missing(target, categories=True))
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
        table: The table, N rows.
        options: Options of the training.
        plan: Features, target and columns left out.
        targets: ``[N]``, the target's unit or class indices; NaN where missing.
        weights: Weights of the rows, ``[N]``; None if all are equal.
        hints: What decides where cells leave open how they are to be read.
        began: When the user began to wait, in monotonic seconds, for ``--budget``.
        notes: What the user should know about the choice of a number or of classes, a line each.
        rows: Index of each row in the file, ascending, where these are a sample of its rows; None: they are all.
    """

    table: pa.Table
    options: TrainOptions
    plan: ColumnPlan
    targets: NDArray[np.float64]
    weights: NDArray[np.float64] | None
    hints: ReadingHints
    began: float
    notes: tuple[str, ...] = ()
    rows: NDArray[np.int64] | None = None

    @cached_property
    def columns(self) -> Columns:
        """Canonical columns of the features, ``[N]`` each; made when they are asked for, so that a sample is enough."""
        return columns_from_table(self.table, self.plan.schema)

    def left_out_lines(self) -> list[str]:
        """Return a line for each column that is no feature, with the reason."""
        return [f"left out column {column!r}: {reason}" for column, reason in self.plan.schema.left_out.items()]

    def report(self) -> DataReport:
        """Return the data report."""
        suspects = check_leaks(self.table, self.plan.schema, self.targets)
        return describe_table(self.table, self.plan, suspects, weight=self.options.weight)


def reading_hints(table: pa.Table, options: TrainOptions, ignored: Collection[str]) -> ReadingHints:
    """Return what the options and the columns that aren't ignored tell about the reading of columns."""
    return hints_of_table(
        table,
        decimal=options.decimal,
        date_order=options.date_order,
        pivot=options.pivot_year,
        missing_value=options.missing_value,
        keep=options.keep,
        skip=ignored,
    )


def prepare_table(table: pa.Table, target: str, options: TrainOptions, began: float | None = None) -> PreparedTable:
    """Infer features, targets and weights.

    Args:
        table: The table, as `model.tables.table_files.read_table` returns it.
        target: The predicted column.
        options: Validated options.
        began: When the user began to wait, in monotonic seconds; by default now.

    Raises:
        TableError: The table can't be used; column and row are named.
        OptionError: An option names a column that is not there or can't be used so.
    """
    whole, weights, said, target = table, None, list[str](), composed(target)
    began = time.monotonic() if began is None else began
    if options.weight is not None:
        weights = row_weights(table, options.weight, target=target)
        table = table.drop_columns([options.weight])
    ignored = [name for name in options.ignore if name != options.weight]
    hints = reading_hints(table, options, ignored)
    if options.drop_bad_rows and target in table.column_names:
        bad = misfits_of(table.column(target), target, hints)
        hints = hints.with_missing(target, bad)
        said += [f"rows with the target {', '.join(map(repr, bad))} are left out"] if bad else []
    classes = choose_classes(table, target, options, said.append, hints)
    plan = plan_columns(
        table,
        target,
        ignore=ignored,
        groups=options.group,
        overrides={name: given for name, given in options.columns.items() if name != options.weight},
        classes=classes,
        hints=hints,
    )
    targets = read_targets(table, plan.schema.target)
    if classes is None and options.task == "auto":
        say_if_few_numbers(targets, target, said.append)
    return PreparedTable(whole, options, plan, targets, weights, hints, began, tuple(said))


FEWEST_SAMPLED_ROWS = 20_000
ROWS_A_SECOND = 500
"""Rows that one second of a budget is enough for."""
FEWEST_HELD_OUT = 2_000
HELD_OUT_A_SECOND = 40
"""Rows that judge the fits and calibrate, for each second; each takes some milliseconds in all."""
FEWEST_OF_A_CLASS = 50
"""Rows of a class that are taken first: a class without a row could not be learned."""


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


def held_out_within_budget(prepared: PreparedTable) -> int:
    """Most rows that judge and calibrate: fewer than `MOST_HELD_OUT` where the rows are a sample."""
    if prepared.rows is None:
        return MOST_HELD_OUT
    seconds = _seconds(len(prepared.targets), prepared.options)
    return min(MOST_HELD_OUT, max(FEWEST_HELD_OUT, round(HELD_OUT_A_SECOND * seconds)))


def _seconds(rows: int, options: TrainOptions) -> float:
    return options.budget or quick_budget(rows)


def rows_for_budget(prepared: PreparedTable) -> PreparedTable:
    """Return the rows that the budget is enough for, in the order of the table; ``prepared`` itself if these are all.

    They are drawn at random among the rows with a target, by the seed of the training, and a note says so.

    Args:
        prepared: The table, N rows.
    """
    options = prepared.options
    if prepared.rows is not None:
        return prepared
    usable = ~np.isnan(prepared.targets)
    if prepared.weights is not None:
        usable &= prepared.weights > 0.0
    labelled = np.flatnonzero(usable)
    count = rows_within_budget(len(labelled), options)
    if count == len(labelled):
        return prepared
    order = np.random.default_rng(seed_for(options.seed, "sample of rows")).permutation(labelled)
    if prepared.plan.schema.target.classes is not None:
        order = _rare_classes_first(order, prepared.targets[order])
    rows = np.sort(order[:count])
    note = f"learns from {count:,} of {len(labelled):,} rows, drawn at random: what the time is enough for"
    return replace(
        prepared,
        table=rows_of(prepared.table, rows),
        targets=prepared.targets[rows],
        weights=None if prepared.weights is None else prepared.weights[rows],
        notes=(*prepared.notes, note),
        rows=rows,
    )


def _rare_classes_first(order: NDArray[np.int64], classes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the same rows, the first `FEWEST_OF_A_CLASS` of each class before all others."""
    first = np.zeros(len(order), dtype=bool)
    for label in np.unique(classes):
        first[np.flatnonzero(classes == label)[:FEWEST_OF_A_CLASS]] = True
    return np.concatenate((order[first], order[~first]))
