"""Rows that are read block by block are the rows that are read at once, and errors name rows of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from murho.model.errors import TableError
from murho.model.tables import files
from murho.model.tables.files import check_rows, column_blocks
from murho.model.tables.schema_inference import columns_from_table, make_schema, plan_columns
from tests.model.conftest import make_table

if TYPE_CHECKING:
    from murho.model.tables.schema import Schema


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROWS_PER_BLOCK", 8)


def _schema(table: pa.Table) -> Schema:
    plan = plan_columns(table, "rent")
    return make_schema(plan.schema, columns_from_table(table, plan.schema))


def test_blocks_have_the_cells_of_the_whole() -> None:
    table = make_table(rows=40)
    schema = _schema(table)
    rows = np.array([0, 1, 2, 3, 4, 5, 6, 7, 9, 31, 39])  # a whole block, parts, and two blocks without a row
    whole = columns_from_table(table.take(rows), schema)
    blocks = list(column_blocks(table, schema, rows))
    assert [(place.start, place.stop) for place, _ in blocks] == [(0, 8), (8, 9), (9, 10), (10, 11)]
    for name, column in whole.items():
        np.testing.assert_array_equal(np.concatenate([columns[name] for _, columns in blocks]), column)


def test_a_bad_cell_is_named_by_its_row_of_the_table_and_matters_in_chosen_rows_alone() -> None:
    table = make_table(rows=40)
    schema = _schema(table)
    size = ["" if cell is None else str(cell) for cell in table.column("size").to_pylist()]
    size[21] = "wide"
    bad = table.set_column(table.column_names.index("size"), "size", pa.array(size))
    check_rows(bad, schema, np.array([3, 20, 22]))
    with pytest.raises(TableError, match="column 'size', row 22: ") as caught:
        check_rows(bad, schema, np.array([3, 20, 21]))
    assert caught.value.row == 22
