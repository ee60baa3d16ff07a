"""Totals over the rows of a table, in blocks: for Python, for `murho aggregate` and for the workers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import TableError
from murho.model.predictive.totals import Totals, TotalsAnswer, TotalsOptions
from murho.model.tables.columns import plain
from murho.model.tables.schema_inference import GROUPS, columns_from_table, require_column, weights_from_table


def add_up_table(
    posterior: Posterior,
    table: pa.Table,
    options: TotalsOptions,
    by: Sequence[str] = (),
    weights: str | None = None,
) -> Totals:
    """Return the totals of the rows of a table.

    Args:
        posterior: What answers.
        table: The rows, with all features; it may have other columns.
        options: What is asked.
        by: Columns whose cells say which rows belong together; they need not be features. Where the table has the
            columns of ``--group``, the noise of rows of one group is correlated as held-out rows told.
        weights: The column of the weights; None: all rows count alike.

    Raises:
        TableError: A column is missing, or a cell or weight can't be used.
        OptionError: An option can't be used, or there are too many groups.
    """
    totals = Totals.of(options, posterior.schema)
    for name in by:
        require_column(table, name, "the column")
    units = [name for name, why in posterior.schema.left_out.items() if why == GROUPS]
    learned = posterior.spec.totals
    correlated = learned is not None and learned.within > 0.0 and bool(units) and {*units} <= {*table.column_names}
    for start in range(0, table.num_rows, totals.rows_at_a_time):
        block = table.slice(start, totals.rows_at_a_time)
        try:
            columns = columns_from_table(block, posterior.schema)
            amounts = None if weights is None else weights_from_table(block, weights)
        except TableError as error:
            raise error.shift_rows(start) from error
        of_units = _labels(block, units) if correlated else None
        totals.add(posterior.predict(columns, totals.asked), columns, _labels(block, by), amounts, of_units)
    return totals


def _labels(block: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the cells of each row in some columns; None where one is missing."""
    cells = [plain(block.column(name), name).to_pylist() for name in names]
    return list(zip(*cells, strict=True)) if names else [()] * block.num_rows


def answer_of(totals: Totals, posterior: Posterior) -> TotalsAnswer:
    """Return the answer for all rows so far, see `Totals.answer`."""
    alone = None if totals.alone is None else posterior.predict(*totals.alone)
    return totals.answer(alone, posterior.spec.totals)
