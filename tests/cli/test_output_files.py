"""A CSV file that is written in parts is the one that is written at once, or is not there."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from murho.cli import output_files
from murho.cli.output_files import csv_writer, parquet_writer
from murho.model.errors import TableError
from tests.support import write_table

TABLE = pa.table({"a, b": [0.1, None, 3.0, 1e300], "c": ["x", "", None, "ü"]})


def test_parts_make_the_file_that_the_whole_table_makes(tmp_path: Path) -> None:
    with csv_writer(tmp_path / "parts.csv") as write:
        for start in range(4):
            write(TABLE.slice(start, 1))
    write_table(tmp_path / "whole.csv", dict(zip(TABLE.column_names, TABLE.columns, strict=True)))
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_without_a_path_csv_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    with csv_writer(None) as write:
        write(pa.table({"mean": [0.1], "p5": [3]}))
    assert capsys.readouterr().out == "mean,p5\n0.1,3\n"


NESTED = pa.table({"a": [0.1, None, 3.0, 1e300], "b": ["x", "", None, "ü"], "c": [[1.0], [2.0, 3.0], [], [4.0]]})


def test_groups_are_written_while_rows_come_and_a_text_may_come_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_files, "ROWS_PER_GROUP", 3)
    path, late = tmp_path / "groups.parquet", [None, None, None, "late"]
    with parquet_writer(path) as write:
        for start in range(4):
            write(NESTED.slice(start, 1).append_column("warnings", pa.array([late[start]])))
    assert pq.ParquetFile(path).num_row_groups == 2
    assert pq.read_table(path).to_pylist() == NESTED.append_column("warnings", pa.array(late)).to_pylist()


def _fails(writer: AbstractContextManager[Callable[[pa.Table], object]], *tables: pa.Table, after: bool) -> None:
    with writer as write:
        for table in tables:
            write(table)
        if after:
            raise TableError("write it again")


@pytest.mark.parametrize("rows", [1, 100])
def test_an_error_leaves_the_old_file_and_nothing_else(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_files, "ROWS_PER_GROUP", rows)
    for name, writer, other, said in (
        ("table.csv", csv_writer, [pa.table({"a": [[1]]})], r"write \.parquet instead"),
        ("table.parquet", parquet_writer, [pa.table({"a": [1]}), pa.table({"a": ["x"]})], r"table\.parquet"),
    ):
        path = tmp_path / name
        path.write_text("old")
        with pytest.raises(TableError, match="write it again"):
            _fails(writer(path), TABLE, after=True)
        with pytest.raises(TableError, match=said):
            _fails(writer(path), *other, after=False)
        assert path.read_text() == "old"
        path.unlink()
        with pytest.raises(TableError, match="No such file or directory"):
            _fails(writer(tmp_path / "none" / name), after=True)
    assert list(tmp_path.iterdir()) == []
