"""The column of row weights: what is accepted, and what is refused by column and row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from murho.model.errors import MurhoError, OptionError, TableError
from murho.model.tables.schema_inference import row_weights


def _table(weights: list[object]) -> pa.Table:
    return pa.table({"y": [1.0, 2.0, 3.0], "w": weights})


def test_numbers_from_zero_on_are_read_as_they_are() -> None:
    np.testing.assert_array_equal(row_weights(_table([0, 2, 5]), "w", target="y"), [0.0, 2.0, 5.0])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -0.5, 1.0], "column 'w', row 2: the weight .-0.5. is negative"),
        ([1.0, 1.0, None], "column 'w', row 3: the weight is missing"),
        ([1.0, float("inf"), 1.0], "column 'w', row 2: inf is not finite"),
        (["1", "two", "3"], "column 'w', row 2"),
        ([0.0, 0.0, 0.0], "all weights are zero"),
    ],
)
def test_other_weights_are_refused_by_column_and_row(weights: list[object], message: str) -> None:
    with pytest.raises(TableError, match=message):
        row_weights(_table(weights), "w", target="y")


@pytest.mark.parametrize(("column", "error", "message"), [("v", TableError, "'v'"), ("y", OptionError, "target")])
def test_the_column_must_exist_and_not_be_the_target(column: str, error: type[MurhoError], message: str) -> None:
    with pytest.raises(error, match=message):
        row_weights(_table([1.0, 1.0, 1.0]), column, target="y")
