"""Tests of `service.tables.csv_tables`: blocks are the rows of the whole, and records end where the reader ends one."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murho.service.errors import BadInputError
from murho.service.predict.answers import Terms
from murho.service.predict.routes import reader_of
from murho.service.settings import Settings
from murho.service.tables import blocks as table_blocks
from murho.service.tables import csv_tables
from murho.service.tables.csv_tables import CSVCodec
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


def columns_in_blocks(body: bytes, **limits: Any) -> list[dict[str, Any]]:
    asked = CSVCodec().read(memoryview(body), Terms({}, SCHEMA, Settings(**limits)))
    blocks = list(asked.blocks)
    assert sum(block.count for block in blocks) == asked.rows
    return [dict(block.columns) for block in blocks]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(ROWS, min_size=1, max_size=30),
    most=st.integers(1, 7),
    chunk=st.integers(200, 600),
    delimiter=st.sampled_from(",;\t"),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.booleans(),
)
def test_blocks_are_the_rows_of_the_whole(
    rows: list[dict[str, Any]],
    most: int,
    chunk: int,
    delimiter: str,
    end: str,
    mark: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = b"\xef\xbb\xbf" * mark + text_of(
        rows, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL if end == "\r" else csv.QUOTE_MINIMAL
    )
    whole = reader_of("text/csv").decode(body, Terms({}, SCHEMA, Settings())).inputs
    monkeypatch.setattr(table_blocks, "BLOCK_ROWS", most)
    monkeypatch.setattr(csv_tables, "TEXT_BYTES", chunk)
    blocks = columns_in_blocks(body)
    assert max(len(block["Weight"]) for block in blocks) <= most
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(np.concatenate([block[name] for block in blocks]), column)


def test_names_are_checked_before_a_row_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # A thousand columns of nothing took 0.2 s in the event loop.
    monkeypatch.setattr("pyarrow.csv.read_csv", None)
    body = ",".join(f"c{index}" for index in range(1000)).encode() + b"\n1"
    with pytest.raises(BadInputError) as caught:
        reader_of("text/csv").decode(body, Terms({}, SCHEMA, Settings()))
    assert caught.value.total == 1000 + len(NAMES)


def test_a_byte_that_is_not_utf8_is_said_with_its_line() -> None:
    with pytest.raises(BadInputError, match="line 3: byte 0xff"):
        columns_in_blocks(text_of([]) + b"1,,true,,a\n1,,true,,\xff")


@pytest.mark.parametrize("rows", [2, 100_000])
def test_a_quote_that_is_not_closed_is_bad_input(rows: int) -> None:
    row = dict(zip(NAMES, ["1500", "", "true", "", "Europe"], strict=True))
    body = text_of([row] * rows, lineterminator="\n") + b'1500,,true,,"Europe\n1500,,true,,Europe\n'
    with pytest.raises(BadInputError, match=f"line {rows + 2}: a quote opens a cell there and isn't closed"):
        columns_in_blocks(body)


def test_a_megabyte_of_quotes_is_looked_through_at_once() -> None:
    # It took seconds and a gigabyte: each pair of quotes was a step to come back to.
    with pytest.raises(BadInputError, match="a row takes more than 512 KiB: is a quote not closed"):
        columns_in_blocks(b"Weight,Horsepower,Automatic,Year,Origin/plant\n" + b'"' * 2**24)
