"""Tests of `model.tables.columns`: texts that a table has once for many rows."""

import numpy as np
import pyarrow as pa
import pytest

from murho.model.errors import TableError
from murho.model.tables.cells import LONGEST_TEXT
from murho.model.tables.columns import canonical_column, float_array, floats, plain
from murho.model.tables.schema import FeatureKind

TEXTS = ["é", None, "", "a text of more than twelve bytes", "bb", " c "]
KINDS = [pa.string(), pa.large_string(), pa.string_view()]


def column_of(kind: pa.DataType, form: str) -> pa.ChunkedArray:
    """Return the texts three times, behind one that is cut off: plain, or as a dictionary of two chunks."""
    if form == "plain":
        cells = pa.array(["cut off", *TEXTS], kind)[1:]
        return pa.chunked_array([cells, cells, cells])
    values = pa.array(["cut off", "never taken", *TEXTS], kind)[1:]
    codes = pa.array([0, 1, 2, 3, 4, 5, 6], pa.int8())[1:]
    rows = pa.DictionaryArray.from_arrays(codes, values)
    return pa.chunked_array([rows, rows.take(pa.array(list(range(6)) * 2))])


@pytest.mark.parametrize("form", ["plain", "dictionary"])
@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_written_out(kind: pa.DataType, form: str) -> None:
    column = column_of(kind, form)
    assert plain(column, "x").to_pylist() == ["é", None, None, TEXTS[3], "bb", "c"] * 3


def test_a_longer_text_than_a_cell_holds_is_refused_with_its_row() -> None:
    long = pa.array(["a", "b" * LONGEST_TEXT, "é" * (LONGEST_TEXT // 2) + "b"])
    column = pa.chunked_array([long[:1], long[1:]])
    with pytest.raises(TableError, match=r"column 'x', row 3: the text takes 65537 bytes; .* at most 65536") as error:
        canonical_column(column, FeatureKind.CATEGORICAL, "x")
    assert error.value.row == 3
    assert len(canonical_column(column[:2], FeatureKind.CATEGORICAL, "x")[1]) == LONGEST_TEXT


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_a_float_array_is_pyarrows_own(count: int) -> None:
    rows = np.random.default_rng(count)
    numbers = np.where(rows.random(count) < 0.3, np.nan, rows.normal(size=count))
    made = float_array(numbers)
    made.validate(full=True)
    assert made.equals(pa.array(numbers, from_pandas=True))
    np.testing.assert_array_equal(floats(made), numbers)


def test_dictionaries_of_what_no_cell_is_are_refused() -> None:
    column = pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([["a"]]))])
    with pytest.raises(TableError, match="'x': cells of the type dictionary"):
        canonical_column(column, FeatureKind.CATEGORICAL, "x")
