"""Chosen rows of a table are read alone, and errors name rows of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from murho.model.errors import TableError
from murho.model.tables.schema_inference import columns_from_table, make_schema, plan_columns
from tests.model.conftest import make_table

if TYPE_CHECKING:
    from murho.model.tables.schema import Schema


def _schema(table: pa.Table) -> Schema:
    plan = plan_columns(table, "rent")
    return make_schema(plan.schema, columns_from_table(table, plan.schema))


def test_chosen_rows_have_the_cells_of_the_whole() -> None:
    table = make_table(rows=40)
    schema = _schema(table)
    rows = np.array([0, 1, 7, 9, 31, 39])
    whole, chosen = columns_from_table(table, schema), columns_from_table(table, schema, rows=rows)
    for name, column in whole.items():
        np.testing.assert_array_equal(chosen[name], column[rows])


@pytest.mark.parametrize("cell", ["wide", ""])
def test_a_bad_cell_is_named_by_its_row_of_the_table_and_matters_in_chosen_rows_alone(cell: str) -> None:
    table = make_table(rows=40).drop_columns(["district"])
    schema = _schema(table)
    size = ["1" if cell is None else str(cell) for cell in table.column("lift").to_pylist()]
    size[21] = cell
    bad = table.set_column(table.column_names.index("lift"), "lift", pa.array(size))
    columns_from_table(bad, schema, rows=np.array([3, 20, 22]))
    with pytest.raises(TableError, match="column 'lift', row 22: ") as caught:
        columns_from_table(bad, schema, rows=np.array([3, 20, 21]))
    assert caught.value.row == 22
