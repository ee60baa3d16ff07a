"""Totals over the rows of a table, in blocks: for Python, for `murho aggregate` and for the workers of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.errors import TableError
from murho.model.predictive.totals import Totals, check_weights
from murho.model.tables.columns import canonical_column
from murho.model.tables.schema import FeatureKind
from murho.model.tables.schema_inference import columns_from_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.predictive.totals import TotalsAnswer, TotalsOptions

__all__ = ["add_table", "answer_of", "totals_of_table"]


def add_table(
    totals: Totals,
    posterior: Posterior,
    table: pa.Table,
    by: Sequence[str] = (),
    weights: str | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> None:
    """Add the rows of a table to totals.

    Args:
        totals: The totals.
        posterior: What answers.
        table: The rows, with all features; it may have other columns.
        by: Columns whose cells say which rows belong together; they need not be features.
        weights: The column of the weights; None: all rows count alike.
        advance: Called with the number of rows after each block.

    Raises:
        TableError: A column is missing, or a cell can't be used.
        OptionError: A weight can't be used, or there are too many groups.
    """
    for name in (*by, *(() if weights is None else (weights,))):
        if name not in table.column_names:
            raise TableError(f"there is no column {name!r}; there are {', '.join(map(repr, table.column_names))}")
    size = totals.rows_at_a_time
    for start in range(0, table.num_rows, size):
        block = table.slice(start, size)
        try:
            columns = columns_from_table(block, posterior.schema)
            amounts = None
            if weights is not None:
                amounts = np.asarray(canonical_column(block.column(weights), FeatureKind.NUMERIC, weights), dtype=float)
                check_weights(amounts)
        except TableError as error:
            raise error.moved(start) from error
        cells = [block.column(name).to_pylist() for name in by]
        labels: list[Any] = list(zip(*cells, strict=True)) if by else [()] * block.num_rows
        totals.add(posterior.predict(columns, totals.asked), columns, labels, amounts)
        advance(block.num_rows)


def answer_of(totals: Totals, posterior: Posterior) -> TotalsAnswer:
    """The answer for all rows so far, see `Totals.answer`."""
    alone = None if totals.alone is None else posterior.predict(*totals.alone)
    return totals.answer(alone, posterior.spec.totals)


def totals_of_table(
    posterior: Posterior,
    table: pa.Table,
    options: TotalsOptions,
    by: Sequence[str] = (),
    weights: str | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> TotalsAnswer:
    """Totals over the rows of a table; takes and raises what `add_table` does."""
    options.check(posterior.schema)
    totals = Totals(options)
    add_table(totals, posterior, table, by, weights, advance)
    return answer_of(totals, posterior)
