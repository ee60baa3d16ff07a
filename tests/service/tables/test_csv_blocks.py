"""Tests of `service.tables.csv_blocks`: blocks are the rows of the whole, wherever a body is cut."""

from __future__ import annotations

import csv
import io
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murho.service.errors import BadInputError, TooLargeError
from murho.service.predict.formats import reader_of
from murho.service.settings import Settings
from murho.service.tables import block_codec, csv_blocks
from murho.service.tables.csv_blocks import CSVBlocks
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
    asked = CSVBlocks().read(memoryview(body), {}, SCHEMA, Settings(**limits))
    assert asked is not None
    blocks = list(asked.blocks)
    assert sum(block.count for block in blocks) == asked.rows
    return [dict(block.columns) for block in blocks]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(ROWS, min_size=1, max_size=30),
    most=st.integers(1, 7),
    chunk=st.integers(60, 400),
    delimiter=st.sampled_from(",;\t"),
    end=st.sampled_from(["\n", "\r\n"]),
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
    body = b"\xef\xbb\xbf" * mark + text_of(rows, delimiter=delimiter, lineterminator=end)
    whole = reader_of("text/csv").decode(body, {}, SCHEMA, Settings()).inputs
    monkeypatch.setattr(block_codec, "BLOCK_ROWS", most)
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", chunk)
    blocks = columns_in_blocks(body)
    assert max(len(block["Weight"]) for block in blocks) <= most
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(np.concatenate([block[name] for block in blocks]), column)


def test_wide_rows_make_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 2000)
    row = dict(zip(NAMES, ["1500", "", "true", "", "x" * 600], strict=True))
    blocks = columns_in_blocks(text_of([row] * 10))
    assert [len(block["Weight"]) for block in blocks] == [3, 3, 3, 1]


@pytest.mark.parametrize("body", [b"a,b\r1,2\r3,4\r", b"a,b\n1,2\r3,4\n", b"a,b\n1,2\r", b"\n\n\n"])
def test_what_can_not_be_cut_is_for_the_reader_of_the_whole(body: bytes) -> None:
    body = body.replace(b"a,b", ",".join(NAMES).encode())
    assert CSVBlocks().read(memoryview(body), {}, SCHEMA, Settings()) is None


def test_a_return_and_its_new_line_may_lie_in_two_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    row = dict(zip(NAMES, ["1500", "", "true", "", "Europe"], strict=True))
    body = text_of([row] * 3, lineterminator="\r\n")
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", body.index(b"\r", 60) + 1)
    assert sum(len(block["Weight"]) for block in columns_in_blocks(body)) == 3


@pytest.mark.parametrize("lines", [b"", b"\n", b"\n" * 2_000_000])
def test_blank_lines_are_no_rows(lines: bytes) -> None:
    with pytest.raises(BadInputError, match="no rows"):
        columns_in_blocks(",".join(NAMES).encode() + lines)


def test_names_are_checked_before_a_row_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # A thousand columns of nothing took 0.2 s in the event loop.
    monkeypatch.setattr("pyarrow.csv.read_csv", None)
    body = ",".join(f"c{index}" for index in range(1000)).encode() + b"\n1"
    with pytest.raises(BadInputError) as caught:
        reader_of("text/csv").decode(body, {}, SCHEMA, Settings())
    assert caught.value.total == 1000 + len(NAMES)


@pytest.mark.parametrize("rows", [2, 100_000])
def test_a_quote_that_is_not_closed_is_bad_input(rows: int) -> None:
    row = dict(zip(NAMES, ["1500", "", "true", "", "Europe"], strict=True))
    body = text_of([row] * rows, lineterminator="\n") + b'1500,,true,,"Europe\n1500,,true,,Europe\n'
    readers = partial(reader_of("text/csv").decode, body), lambda *_: columns_in_blocks(body)
    for read in readers:
        with pytest.raises(BadInputError, match=f"line {rows + 2}: a quote opens a cell there and isn't closed"):
            read({}, SCHEMA, Settings())


def test_a_text_of_more_than_a_cell_holds_is_bad_input() -> None:
    row = dict(zip(NAMES, ["1500", "", "true", "", "a" * 65_537], strict=True))
    with pytest.raises(BadInputError, match="row 1: the text takes 65537 bytes; a cell holds at most 65536"):
        columns_in_blocks(text_of([row]))


def test_limits_hold_before_a_row_is_parsed() -> None:
    row = dict(zip(NAMES, ["1500", "", "true", "", "Europe"], strict=True))
    with pytest.raises(TooLargeError, match="at most 5"):
        columns_in_blocks(text_of([row] * 6), max_rows=5)
    with pytest.raises(TooLargeError, match="header line"):
        columns_in_blocks(b"x" * 2**19)
    with pytest.raises(BadInputError, match="Parquet"):
        columns_in_blocks(b"PAR1" + b"x" * 100)


def test_a_quote_that_is_not_closed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_blocks, "MOST_ROW_BYTES", 2**12)
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 2**10)
    row = dict(zip(NAMES, ["1500", "", "true", "", "Europe"], strict=True))
    body = text_of([row] * 3) + b'1500,,true,,"Eur\n' + b"1500,,true,,Europe\n" * 1000
    with pytest.raises(BadInputError, match="is a quote not closed"):
        columns_in_blocks(body)
