from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from murho.model.tables.columns import float_array, floats, number_array, rows_of, text_array


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
@pytest.mark.parametrize("missing", [0.0, 0.3, 1.0])
def test_a_float_array_is_pyarrows_own(count: int, missing: float) -> None:
    rows = np.random.default_rng(count)
    numbers = np.where(rows.random(count) < missing, np.nan, rows.normal(size=count))
    made = float_array(numbers)
    made.validate(full=True)
    assert made.equals(pa.array(numbers, from_pandas=True))
    assert made.null_count == np.isnan(numbers).sum()
    np.testing.assert_array_equal(floats(made), numbers)


def test_a_float_array_takes_a_column_of_a_matrix() -> None:
    matrix = np.arange(12.0).reshape(4, 3)
    assert float_array(matrix[:, 1]).to_pylist() == [1.0, 4.0, 7.0, 10.0]


@pytest.mark.parametrize("texts", [[], ["a"], [None], ["é", None, "", "bcd"] * 5])
def test_texts_are_pyarrows_own(texts: list[str | None]) -> None:
    made = text_array(texts)
    made.validate(full=True)
    assert made.equals(pa.array(texts, pa.string()))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
def test_numbers_are_pyarrows_own(dtype: type[np.generic]) -> None:
    numbers = np.arange(12).reshape(4, 3).astype(dtype)[:, 1]
    assert number_array(numbers).equals(pa.array(np.ascontiguousarray(numbers)))
    assert np.isnan(number_array(np.array([np.nan]))[0].as_py())


def test_rows_of_a_table_are_those_that_pyarrow_takes() -> None:
    table = pa.table({"number": [1.0, None, 3.0], "text": ["a", "b", None]})
    rows = np.array([2, 0, 0])
    assert rows_of(table, rows).equals(table.take(rows))
    assert rows_of(table, np.arange(3)) is table
