"""A table on its way into a training: which columns are features, the targets, the weights.

Nothing here needs PyTorch, so that what is wrong with a table is said before seconds of imports.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from murho.model.data.data_report import describe_table
from murho.model.data.reading_inference import hints_of_table
from murho.model.data.row_weights import row_weights
from murho.model.data.schema_inference import columns_from_table, plan_columns
from murho.model.data.targets import read_targets
from murho.model.training.target_classes import choose_classes, say_if_few_numbers

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.data.data_report import DataReport
    from murho.model.data.schema import Columns
    from murho.model.data.schema_inference import ColumnPlan
    from murho.model.training.options import TrainOptions

__all__ = ["PreparedTable", "left_out_groups", "prepare_table"]


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
        table: The table, as `model.data.tables.read_table` or `model.data.stored_tables.open_table` returns it.
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
