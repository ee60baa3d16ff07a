"""A table on its way into a training: which columns are features, the targets, the weights.

Nothing here needs PyTorch, so that what is wrong with a table is said before seconds of imports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from murho.model.data.data_report import describe_table
from murho.model.data.row_weights import row_weights
from murho.model.data.schema_inference import columns_from_table, plan_columns, target_from_table

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.data.data_report import DataReport
    from murho.model.data.schema import Columns
    from murho.model.data.schema_inference import ColumnPlan
    from murho.model.training.options import TrainOptions

__all__ = ["PreparedTable", "left_out_groups", "prepare_table"]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTable:
    """A table, and what was inferred of it.

    Attributes:
        given: The table as it was given, N rows.
        table: The same without the column of weights.
        plan: Features, target and columns left out.
        columns: Canonical columns of the features, ``[N]`` each.
        targets: ``[N]``, NaN where missing.
        weights: Weights of the rows, ``[N]``; None if all are equal.
        weight: The column of weights, or None.
    """

    given: pa.Table
    table: pa.Table
    plan: ColumnPlan
    columns: Columns
    targets: NDArray[np.float64]
    weights: NDArray[np.float64] | None
    weight: str | None

    def left_out_lines(self) -> list[str]:
        """A line for each column that is no feature, with the reason."""
        return [f"left out column {column!r}: {reason}" for column, reason in self.plan.left_out.items()]

    def report(self) -> DataReport:
        """The data report."""
        return describe_table(self.given, self.plan, self.columns, self.targets, weight=self.weight)


def left_out_groups(options: TrainOptions) -> tuple[str, ...]:
    """The group columns that are no features."""
    return () if options.keep_groups else options.group


def prepare_table(table: pa.Table, target: str, options: TrainOptions) -> PreparedTable:
    """Infer features, targets and weights.

    Args:
        table: The table, as `model.data.tables.read_table` returns it.
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
    plan = plan_columns(
        table,
        target,
        ignore=[name for name in options.ignore if name != options.weight],
        groups=left_out_groups(options),
        overrides={name: given for name, given in options.columns.items() if name != options.weight},
        decimal=options.decimal,
        day_first=options.day_first,
    )
    columns = columns_from_table(table, plan)
    return PreparedTable(given, table, plan, columns, target_from_table(table, plan.target), weights, options.weight)
