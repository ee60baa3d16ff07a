"""Tables of every kind become the same JSON cells."""

from __future__ import annotations

import json
from collections import namedtuple
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from murho_client import InvalidInput
from murho_client._data import to_batch

COLUMNS: dict[str, list[Any]] = {
    "Weight": [3504.0, None, 2372.5],
    "Count": [8, 4, 6],
    "Diesel": [True, None, False],
    "Origin": ["USA", None, "Japan"],
    "Year": ["1970-01-01", None, "1982-06-30"],
}
MOMENTS = [datetime(1970, 1, 1), None, datetime(1982, 6, 30)]
FRAME = pd.DataFrame(COLUMNS | {"Year": pd.to_datetime(MOMENTS)})
DATED = COLUMNS | {"Year": [None if moment is None else moment.date() for moment in MOMENTS]}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(COLUMNS, id="columns"),
        pytest.param(DATED, id="columns with dates"),
        pytest.param([dict(zip(DATED, row, strict=True)) for row in zip(*DATED.values(), strict=True)], id="records"),
        pytest.param(FRAME, id="pandas"),
        pytest.param(FRAME.convert_dtypes(), id="pandas nullable"),
        pytest.param(FRAME.convert_dtypes(dtype_backend="pyarrow"), id="pandas on arrow"),
        pytest.param(FRAME.astype({"Origin": "category"}), id="pandas categories"),
        pytest.param(pl.DataFrame(DATED), id="polars"),
        pytest.param(pl.DataFrame(DATED).with_columns(pl.col("Origin").cast(pl.Categorical)), id="polars categories"),
        pytest.param(pl.DataFrame(DATED | {"Year": MOMENTS}), id="polars moments"),
        pytest.param(pa.table(DATED).to_batches()[0], id="arrow batch"),
        pytest.param(pa.table(DATED).to_reader(), id="arrow reader"),
        pytest.param(
            pa.table(DATED | {"Origin": pa.array(DATED["Origin"]).dictionary_encode()}), id="arrow dictionary"
        ),
        pytest.param(
            DATED | {"Weight": np.array([3504, np.nan, 2372.5]), "Count": np.array([8, 4, 6], np.int8)}, id="arrays"
        ),
    ],
)
def test_tables_of_all_kinds_have_the_same_cells(data: object) -> None:
    batch = to_batch(data)

    assert batch.names == tuple(COLUMNS)
    assert batch.inputs() == COLUMNS
    assert batch.rows == 3
    assert batch.labels is None


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param([2**53 + 1, None], id="list"),
        pytest.param([2**53 + 1, float("nan")], id="list with nan"),
        pytest.param(pd.Series([2**53 + 1, None], dtype="Int64"), id="pandas nullable"),
        pytest.param(pd.Series([2**53 + 1, None], dtype="uint64[pyarrow]"), id="pandas on arrow"),
        pytest.param(pd.Series([2**53 + 1, np.nan], dtype=object), id="pandas objects"),
        pytest.param(pl.Series([2**53 + 1, None]), id="polars"),
        pytest.param(pa.chunked_array([[2**53 + 1, None]]), id="arrow"),
    ],
)
def test_whole_numbers_keep_their_digits_beside_missing_cells(cells: Any) -> None:
    assert to_batch({"sensor": cells}).inputs() == {"sensor": [2**53 + 1, None]}


@pytest.mark.parametrize(
    "data",
    [np.array([[1, 2.5], [3, np.nan]]), [[1, 2.5], (3, None)], pd.DataFrame(np.array([[1, 2.5], [3, np.nan]]))],
    ids=["array", "lists", "pandas without names"],
)
def test_a_matrix_has_no_names(data: object) -> None:
    batch = to_batch(data)

    assert batch.names is None
    assert batch.inputs() == [[1, 2.5], [3, None]]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (pd.NA, None),
        (pd.NaT, None),
        (np.float32("nan"), None),
        (Decimal("NaN"), None),
        (np.ma.masked, None),
        (np.bool_(True), True),
        (np.float32(0.5), 0.5),
        (Decimal("1.25"), 1.25),
        (np.array(2.0), 2.0),
        (datetime(2024, 5, 31), "2024-05-31"),
        (pd.Timestamp("2024-05-31 12:30", tz="Europe/Berlin"), "2024-05-31T10:30:00Z"),
        (np.datetime64("2024-05-31T12:30:00.5"), "2024-05-31T12:30:00.500000Z"),
        (np.datetime64("2024-05"), "2024-05-01"),
        (2**70, 2**70),
    ],
)
def test_a_cell_of_any_type_is_plain_json(cell: object, expected: object) -> None:
    found = dict(to_batch({"a": cell}).inputs())

    assert found == {"a": [expected]}
    assert type(found["a"][0]) is type(expected)


BERLIN = pd.Series(pd.to_datetime(["2024-05-31 12:30", None, "2024-06-01 02:00"])).dt.tz_localize("Europe/Berlin")


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(BERLIN, id="pandas"),
        pytest.param(BERLIN.array, id="array of pandas"),
        pytest.param(BERLIN.tolist(), id="list"),
        pytest.param(pl.from_pandas(BERLIN), id="polars"),
        pytest.param(pa.chunked_array([pa.array(BERLIN)[:1], pa.array(BERLIN)[1:]]), id="arrow chunks"),
        pytest.param(BERLIN.astype(pd.ArrowDtype(pa.timestamp("ns", "Europe/Berlin"))), id="pandas on arrow"),
    ],
)
def test_moments_of_a_time_zone_are_written_in_utc(moments: object) -> None:
    assert to_batch({"a": moments}).inputs() == {"a": ["2024-05-31T10:30:00Z", None, "2024-06-01"]}


def test_records_rows_and_iterators_are_read() -> None:
    car = namedtuple("car", ["a", "b"])  # the untyped form is the one to be read
    structured = np.array([(1, 2.0)], dtype=[("a", int), ("b", float)])

    assert to_batch({"a": 1, "b": None}).inputs() == {"a": [1], "b": [None]}
    assert to_batch([car(1, 2.0)]).inputs() == to_batch(structured).inputs() == {"a": [1], "b": [2.0]}
    assert to_batch({"a": number} for number in range(3)).inputs() == {"a": [0, 1, 2]}


def test_categories_that_are_no_cells_are_their_text_and_masked_cells_are_missing() -> None:
    assert to_batch(np.ma.MaskedArray([[1.0, 2.0]], [[False, True]])).inputs() == [[1.0, None]]
    intervals = pd.cut(pd.Series([1, 9]), [0, 5, 10])

    assert to_batch(pd.DataFrame({"a": intervals})).inputs() == {"a": ["(0, 5]", "(5, 10]"]}


class TestRefusedTables:
    @pytest.mark.parametrize(
        ("data", "words"),
        [
            ([], "no rows"),
            (np.zeros((0, 3)), "no rows"),
            (np.zeros(3), r"reshape\(1, -1\)"),
            ([1, 2], r"row 0 has the type int"),
            ("a", "the type str"),
            ([{"a": 1}, [1]], "row 1: Expected a dict"),
            ([[1], {"a": 1}], "row 1 has the type dict"),
            ({"a": [1], "b": 2}, "'a' is a column, but 'b' is a single value"),
            (pd.Series([1]), r"x.to_frame\(\).T"),
            (pl.LazyFrame({"a": [1]}), "collect"),
            (pa.array([1]), "a table or a record batch"),
            (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), "several levels"),
            ({"a": np.zeros((2, 2))}, r"^a: .*shape \[2, 2\]"),
            ({"a": np.array([1], "m8[ns]")}, "^a: JSON has no word for durations"),
            ({"a": [1, 2], "b": [1]}, "^b: The column has 1 values, but 'a' has 2"),
            (pd.DataFrame([[1, 2]], columns=["a", "a"]), "^a: There is more than one column"),
            ([[1, 2], [1]], "^row 1: The row has 1 values, but row 0 has 2"),
            ([{"a": 1, "b": 2}, {"a": 1}], "^row 1, b: The row doesn't have this feature"),
        ],
    )
    def test_the_message_says_what_is_wrong(self, data: object, words: str) -> None:
        with pytest.raises(InvalidInput, match=words):
            to_batch(data)

    @pytest.mark.parametrize(
        ("cell", "words"),
        [
            (float("inf"), "infinite"),
            (10**400, "infinite"),
            ([1], "the type list"),
            (1j, "the type complex"),
            (np.timedelta64(1, "D"), "the type timedelta"),
            (np.datetime64(-(10**9), "D"), "years 1 to 9999"),
        ],
    )
    def test_a_cell_is_named_by_row_label_and_column(self, cell: object, words: str) -> None:
        column = pd.Series([0.5, 0.5, cell], dtype=object)
        with pytest.raises(InvalidInput, match=words) as caught:
            to_batch(pd.DataFrame({"a": [1, 2, 3], "b": column}).set_axis(["x", "y", "z"], axis=0))

        (problem,) = caught.value.problems
        assert (problem.row, problem.label, problem.feature) == (2, "z", "b")
        with pytest.raises(InvalidInput, match=r"row 2 \(index 9\), b"):
            to_batch(pd.DataFrame({"a": [1, 2, 3], "b": column}).set_axis([7, 8, 9], axis=0))

    @pytest.mark.parametrize("convert", [np.array, pl.Series, pa.array, pd.Series])
    def test_infinite_numbers_of_all_kinds_of_columns_are_found(self, convert: Any) -> None:
        with pytest.raises(InvalidInput) as caught:
            to_batch({"a": convert([1.0, -np.inf, np.inf])})

        assert [problem.row for problem in caught.value.problems] == [1, 2]
        with pytest.raises(InvalidInput, match="1000 validation errors") as caught:
            to_batch(np.full((500, 2), np.inf))
        assert [problem.row for problem in caught.value.problems] == [row // 2 for row in range(20)]


CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_infinity=False), st.text(), st.dates(), st.datetimes()
)


@given(st.lists(CELLS, min_size=1))
def test_any_cells_can_be_written_as_json_and_read_again(cells: list[Any]) -> None:
    inputs = to_batch({"a": cells}).inputs()

    assert json.loads(json.dumps(inputs, allow_nan=False)) == inputs


@given(st.lists(st.one_of(st.none(), st.floats(allow_infinity=False)), min_size=1), st.integers(1, 10))
def test_slices_join_to_the_whole(numbers: list[float | None], size: int) -> None:
    batch = to_batch(pd.DataFrame({"a": np.array(numbers, dtype=float)}).set_axis(range(7, 7 + len(numbers)), axis=0))
    parts = [batch.slice(start, start + size) for start in range(0, batch.rows, size)]

    assert [label for part in parts for label in part.labels] == list(batch.labels)
    assert sum(part.rows for part in parts) == len(numbers)
    cells = [None if x is None or np.isnan(x) else x for x in numbers]
    assert [cell for part in parts for cell in dict(part.inputs())["a"]] == cells
