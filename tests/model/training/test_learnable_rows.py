"""The rows of a table that can be learned from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from murho.model.training.options import make_options
from murho.model.training.prepared_table import prepare_table
from murho.model.training.rows import TrainingData, learnable_rows
from tests.model.conftest import make_table


def _learnable(table: pa.Table, rows: np.ndarray[Any, Any] | None = None, **options: Any) -> tuple[TrainingData, str]:
    """The rows, and what was said of them."""
    said: list[str] = []
    validated = make_options(options)
    prepared = replace(prepare_table(table, "rent", validated), rows=rows)
    return learnable_rows(prepared, said.append), "\n".join(said)


def _without_some_targets() -> pa.Table:
    table = make_table()
    rent = table.column("rent").to_numpy().copy()
    rent[[2, 5]] = np.nan
    return table.set_column(4, "rent", pa.array(rent, from_pandas=True))


def test_rows_keep_their_number_in_the_users_table() -> None:
    rows, said = _learnable(_without_some_targets())
    assert rows.row_numbers.tolist() == [number for number in range(1, 161) if number not in {3, 6}]
    assert rows.left_out == 2
    assert len(rows.targets) == len(rows.columns["size"]) == 158
    assert "left out 2 of 160 rows: 'rent' is missing" in said


def test_of_a_sample_they_are_the_numbers_in_the_file() -> None:
    rows, _ = _learnable(_without_some_targets(), rows=np.arange(160) * 10)
    assert rows.row_numbers[:4].tolist() == [1, 11, 31, 41]


def test_weights_have_a_mean_of_1_over_the_rows_that_are_learned() -> None:
    table = make_table().append_column("w", pa.array(np.tile([0.0, 2.0, 2.0, 8.0], 40)))
    rows, said = _learnable(table, weight="w", members=1)
    weights, learned = rows.weights, rows.split.learned
    assert weights is not None
    assert len(weights) == 120
    np.testing.assert_allclose(weights[learned].mean(), 1.0)
    assert "left out 40 of 160 rows: their weight 'w' is 0" in said
