"""Tests of `service.tables.csv_tables`: records end where the reader ends one, whatever is read at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murho.service.errors import BadInputError
from murho.service.predict.answers import Terms
from murho.service.predict.routes import reader_of
from murho.service.settings import Settings
from murho.service.tables import csv_tables
from tests.service.support import NAMES, SCHEMA

ROWS = st.fixed_dictionaries(
    {
        "Weight": st.integers(1000, 5000),
        "Horsepower": st.none() | st.integers(40, 230),
        "Automatic": st.booleans(),
        "Year": st.none() | st.dates().map(str),
        "Origin/plant": st.text(alphabet='ab,"\n é', min_size=1, max_size=6).filter(str.strip),
    }
)


def text_of(rows: list[dict[str, Any]], **style: Any) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, NAMES, **style)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def columns_of(body: bytes) -> Mapping[str, Any]:
    return reader_of("text/csv").decode(body, Terms({}, SCHEMA, Settings())).inputs.columns


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(ROWS, min_size=1, max_size=30),
    chunk=st.integers(200, 600),
    delimiter=st.sampled_from(",;\t"),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.booleans(),
)
def test_the_rows_are_those_of_the_whole_whatever_is_read_at_a_time(
    rows: list[dict[str, Any]],
    chunk: int,
    delimiter: str,
    end: str,
    mark: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = b"\xef\xbb\xbf" * mark + text_of(
        rows, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL if end == "\r" else csv.QUOTE_MINIMAL
    )
    whole = columns_of(body)
    assert len(whole["Weight"]) == len(rows)
    monkeypatch.setattr(csv_tables, "TEXT_BYTES", chunk)
    for name, column in columns_of(body).items():
        np.testing.assert_array_equal(column, whole[name])


def test_names_are_checked_before_a_row_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # A thousand columns of nothing took 0.2 s in the event loop.
    monkeypatch.setattr("pyarrow.csv.read_csv", None)
    body = ",".join(f"c{index}" for index in range(1000)).encode() + b"\n1"
    with pytest.raises(BadInputError) as caught:
        reader_of("text/csv").decode(body, Terms({}, SCHEMA, Settings()))
    assert caught.value.total == 1000 + len(NAMES)


def test_a_byte_that_is_not_utf8_is_said_with_its_line() -> None:
    with pytest.raises(BadInputError, match="line 3: byte 0xff"):
        columns_of(text_of([]) + b"1,,true,,a\n1,,true,,\xff")


@pytest.mark.parametrize("rows", [2, 100_000])
def test_a_quote_that_is_not_closed_is_bad_input(rows: int) -> None:
    row = dict(zip(NAMES, ["1500", "", "true", "", "Europe"], strict=True))
    body = text_of([row] * rows, lineterminator="\n") + b'1500,,true,,"Europe\n1500,,true,,Europe\n'
    with pytest.raises(BadInputError, match=f"line {rows + 2}: a quote opens a cell there and isn't closed"):
        columns_of(body)


def test_a_megabyte_of_quotes_is_looked_through_at_once() -> None:
    # It took seconds and a gigabyte: each pair of quotes was a step to come back to.
    with pytest.raises(BadInputError, match="a row takes more than 512 KiB: is a quote not closed"):
        columns_of(b"Weight,Horsepower,Automatic,Year,Origin/plant\n" + b'"' * 2**24)
