"""Tests of `murho.service.tables.csv_blocks`: records end where the reader ends them."""

from __future__ import annotations

import csv
import io
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murho.model.errors import TableError
from murho.model.tables.csv_reader import Header, parse_csv
from murho.service.tables.csv_blocks import record_ends

if TYPE_CHECKING:
    from pathlib import Path

HEADER = Header(",", ["x", "y"], 1)
CELLS = st.text(alphabet='ab",;\n\r 5', max_size=6)


def records(path: Path, chunk_bytes: int = 2**20, most_bytes: int = 2**20) -> list[bytes]:
    data = path.read_bytes()
    chunks = (data[start : start + chunk_bytes] for start in range(0, len(data), chunk_bytes))
    ends = np.concatenate([np.zeros(1, int), *record_ends(chunks, ",", str(path), most_bytes)])
    return [data[start:end] for start, end in pairwise(ends)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=12), chunk=st.integers(1, 40), quoted=st.booleans())
def test_any_table_is_cut_into_its_rows_whatever_is_read_at_a_time(
    rows: list[tuple[str, str]], chunk: int, quoted: bool, tmp_path: Path
) -> None:
    path, text = tmp_path / "t.csv", io.StringIO(newline="")
    # Line breaks are two bytes, so that cells with either of them are quoted.
    csv.writer(text, lineterminator="\r\n", quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL).writerows(
        [("x", "y"), *rows]
    )
    path.write_bytes(text.getvalue().encode())
    pieces = records(path, chunk_bytes=chunk)
    assert b"".join(pieces) == path.read_bytes()
    assert len(pieces) == 1 + len(rows)
    whole = parse_csv(path.read_bytes(), "t", HEADER)
    one_by_one = [parse_csv(pieces[0] + piece, "t", HEADER) for piece in pieces[1:]]
    assert [table.to_pylist()[0] for table in one_by_one] == whole.to_pylist()


@given(
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=12), quoted=st.booleans(), end=st.sampled_from("\n ")
)
def test_a_quote_that_is_not_closed_is_told_from_cells_with_quotes(
    rows: list[tuple[str, str]], quoted: bool, end: str
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n", quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)
    writer.writerows([("x", "y"), *rows])
    whole = text.getvalue().encode()
    assert parse_csv(whole, "t", HEADER).num_rows == len(rows)
    open_cell = f'1,"2{end}3,4{end}'.encode()
    line = whole.count(b"\n") + 1
    with pytest.raises(TableError, match=f"t, line {line}: a quote opens a cell there and isn't closed"):
        parse_csv(whole + open_cell, "t", HEADER)


def test_a_megabyte_of_quotes_is_looked_through_at_once() -> None:
    # It took seconds and a gigabyte: each pair of quotes was a step to come back to.
    with pytest.raises(TableError, match="a row takes more than 4 MiB: is a quote not closed"):
        list(record_ends((b'"' * 2**20 for _ in range(60)), ",", "t", most_bytes=2**22))


def test_blank_lines_are_no_rows_and_a_last_line_break_may_lack(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\nx,y\n1,2\n\r\n\n3,4")
    assert records(path) == [b"\nx,y\n", b"1,2\n", b"\r\n\n3,4"]


def test_a_quote_within_a_cell_is_a_character(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'x,y\n5" pipe,2\n7" pipe,4\n')
    assert len(records(path)) == 3


def test_a_quote_that_is_not_closed_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'x,y\n1,"' + b"2,3\n" * 1_000)
    with pytest.raises(TableError, match=r"t\.csv, from byte 4 on: a row takes more than .* is a quote not closed"):
        records(path, chunk_bytes=100, most_bytes=1_000)
