"""Totals over the rows of a table, in blocks: for Python, for `murho aggregate` and for the workers of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.errors import OptionError, TableError
from murho.model.predictive.totals import Totals
from murho.model.tables.columns import canonical_column
from murho.model.tables.schema import FeatureKind
from murho.model.tables.schema_inference import GROUPS, columns_from_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

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
        by: Columns whose cells say which rows belong together; they need not be features. Where the table has the
            columns of ``--group``, the noise of rows of one group is correlated as held-out rows told.
        weights: The column of the weights; None: all rows count alike.
        advance: Called with the number of rows after each block.

    Raises:
        TableError: A column is missing, or a cell can't be used.
        OptionError: A weight can't be used, or there are too many groups.
    """
    for name in (*by, *(() if weights is None else (weights,))):
        if name not in table.column_names:
            raise TableError(f"there is no column {name!r}; there are {', '.join(map(repr, table.column_names))}")
    units = [name for name, why in posterior.schema.left_out.items() if why == GROUPS]
    known = bool(units) and set(units) <= {*table.column_names}
    for start in range(0, table.num_rows, totals.rows_at_a_time):
        block = table.slice(start, totals.rows_at_a_time)
        try:
            columns = columns_from_table(block, posterior.schema)
            amounts = None if weights is None else canonical_column(block.column(weights), FeatureKind.NUMERIC, weights)
            _check_weights(amounts, start)
        except TableError as error:
            raise error.moved(start) from error
        of_units = _labels(block, units) if known else None
        totals.add(posterior.predict(columns, totals.asked), columns, _labels(block, by), amounts, of_units)
        advance(block.num_rows)


def _labels(block: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The cells of each row in some columns."""
    cells = [block.column(name).to_pylist() for name in names]
    return list(zip(*cells, strict=True)) if names else [()] * block.num_rows


def _check_weights(weights: NDArray[np.float64] | None, start: int) -> None:
    """Raises an `OptionError` that names the first row whose weight isn't a finite number from 0 on."""
    usable = True if weights is None else np.isfinite(weights) & (weights >= 0.0)
    if not np.all(usable):
        row = start + int(np.argmin(usable)) + 1
        raise OptionError(f"--weights: row {row}: expected a finite number that is not negative")


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
    totals = Totals(options, len(posterior.schema.target.classes or (None,)))
    add_table(totals, posterior, table, by, weights, advance)
    return answer_of(totals, posterior)
