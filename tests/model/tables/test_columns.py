"""Tests of `model.tables.columns`: texts that a table has once for many rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from murho.model.errors import TableError
from murho.model.tables.cells import LONGEST_TEXT
from murho.model.tables.columns import canonical_column, plain, stored_kind
from murho.model.tables.schema import FeatureKind

TEXTS = ["é", None, "", "a text of more than twelve bytes", "bb", " c "]
KINDS = [pa.string(), pa.large_string(), pa.string_view()]


def column_of(kind: pa.DataType, form: str) -> pa.ChunkedArray:
    """The texts three times, behind one that is cut off: plain, or as a dictionary of two chunks."""
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


@pytest.mark.parametrize("form", ["plain", "dictionary"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_longer_text_than_a_cell_holds_is_refused_with_its_row(kind: pa.DataType, form: str) -> None:
    long = pa.array(["a", "b" * LONGEST_TEXT, "é" * (LONGEST_TEXT // 2) + "b"], kind)
    rows = long if form == "plain" else pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), long)
    column = pa.chunked_array([rows[:1], rows[1:]])
    with pytest.raises(TableError, match=r"column 'x', row 3: the text takes 65537 bytes; .* at most 65536") as error:
        canonical_column(column, FeatureKind.CATEGORICAL, "x")
    assert error.value.row == 3
    assert len(canonical_column(column[:2], FeatureKind.CATEGORICAL, "x")[1]) == LONGEST_TEXT


@pytest.mark.parametrize("values", [[["a"]], [{"a": "b"}], [b"a"]])
def test_dictionaries_of_what_no_cell_is_stay_as_they_are(values: list[object]) -> None:
    column = pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(values))])
    assert stored_kind(plain(column, "x")) is None
    with pytest.raises(TableError, match="'x': cells of the type dictionary"):
        canonical_column(column, FeatureKind.CATEGORICAL, "x")


def test_dictionaries_of_numbers_are_numbers() -> None:
    codes = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), pa.array([1.5, 2.5]))
    np.testing.assert_array_equal(
        canonical_column(pa.chunked_array([codes]), FeatureKind.NUMERIC, "x"), [2.5, np.nan, 1.5]
    )
