"""A CSV file that is written in parts is the one that is written at once, or is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from murho.model.errors import TableError
from murho.model.tables.files import read_table
from murho.model.tables.writers import csv_writer
from tests.support import write_table

if TYPE_CHECKING:
    from pathlib import Path

TABLE = pa.table({"a, b": [0.1, None, 3.0, 1e300], "c": ["x", "", None, "ü"]})


def test_parts_make_the_file_that_the_whole_table_makes(tmp_path: Path) -> None:
    with csv_writer(tmp_path / "parts.csv") as write:
        for start in range(4):
            write(TABLE.slice(start, 1))
    write_table(tmp_path / "whole.csv", dict(zip(TABLE.column_names, TABLE.columns, strict=True)))
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_rows_are_quoted_where_a_text_needs_it(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    with csv_writer(path) as write:
        for cell in ("x", 'y, "z"', "w"):
            write(pa.table({"c": [cell], "d": [1]}))
    assert path.read_text() == 'c,d\nx,1\n"y, ""z""",1\nw,1\n'
    assert read_table(path).to_pydict() == {"c": ["x", 'y, "z"', "w"], "d": ["1"] * 3}


def _begun_and_failed(path: Path) -> None:
    with csv_writer(path) as write:
        write(TABLE)
        raise TableError("write it again")


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(TableError, match="write it again"):
        _begun_and_failed(path)
    with pytest.raises(TableError, match=r"write \.parquet instead"), csv_writer(path) as write:
        write(pa.table({"a": [[1]]}))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(TableError, match="No such file or directory"), csv_writer(tmp_path / "none" / "a.csv"):
        pass
