"""Tests of `murho.ray.pieces`: pieces are the table, whatever its format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv
import pytest
from pyarrow import parquet

from murho.model.errors import OptionError, TableError
from murho.model.tables.files import read_table
from murho.ray import pieces
from murho.ray.pieces import find_sources, first_rows, read_piece, source_of

if TYPE_CHECKING:
    from pathlib import Path


def write(table: pa.Table, path: Path) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=700)
    else:
        pyarrow.csv.write_csv(table, path)
    return path


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
@pytest.mark.parametrize("rows", [1_000, 999, 3_000, 5_000])
def test_the_pieces_of_a_file_are_its_rows(name: str, rows: int, rents_table: pa.Table, tmp_path: Path) -> None:
    path = write(rents_table, tmp_path / name)
    source = source_of(path, 7, rows)
    parts = [read_piece(source, piece) for piece in source.pieces]
    assert pa.concat_tables(parts).to_pylist() == read_table(path).to_pylist()
    assert [part.num_rows for part in parts] == [piece.rows for piece in source.pieces]
    assert {part.num_rows for part in parts[:-1]} <= {rows}
    assert [piece.part for piece in source.pieces[:2]] == ["part-00007-000000.parquet", "part-00007-000001.parquet"][
        : len(parts)
    ]
    assert source.rows == 3_000
    assert first_rows(path, 10).to_pylist() == read_table(path).slice(0, 10).to_pylist()


@pytest.mark.parametrize("most", [150, 151, 170, 200, 300])
def test_the_first_rows_end_with_a_row_also_within_quotes(
    most: int, rents_table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "HEADER_BYTES", most)
    path = write(rents_table.set_column(6, "remark", pa.array(["one\ntwo\nthree"] * 3_000)), tmp_path / "t.csv")
    found = first_rows(path, 1_000).to_pylist()
    assert found
    assert found == read_table(path).slice(0, len(found)).to_pylist()


def test_a_file_without_a_row_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n")
    with pytest.raises(TableError, match=r"t\.csv is empty: expected a header line"):
        first_rows(tmp_path / "t.csv", 10)


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_table_without_rows_has_no_pieces(name: str, rents_table: pa.Table, tmp_path: Path) -> None:
    assert source_of(write(rents_table.slice(0, 0), tmp_path / name), 0, 10).pieces == ()


def test_a_file_that_changed_meanwhile_is_refused(rents_table: pa.Table, tmp_path: Path) -> None:
    path = write(rents_table, tmp_path / "t.csv")
    source = source_of(path, 0, 1_000)
    path.write_text(path.read_text().replace("Bern", "Thun"))
    with pytest.raises(TableError, match=r"t\.csv has changed since the job began"):
        read_piece(source, source.pieces[1])


def test_the_files_of_a_directory_come_by_name_without_hidden_ones(rents_table: pa.Table, tmp_path: Path) -> None:
    for name in ("b.csv", "a.parquet", "_SUCCESS.csv", "note.md"):
        write(rents_table, tmp_path / name) if "." in name else None
    (tmp_path / ".hidden").mkdir()
    write(rents_table, tmp_path / ".hidden" / "c.csv")
    assert [path.name for path in find_sources([tmp_path])] == ["a.parquet", "b.csv"]


def test_what_can_not_be_read_in_pieces_is_refused(rents_table: pa.Table, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("[]")
    path = write(rents_table, tmp_path / "t.csv")
    with pytest.raises(OptionError, match=r"t\.json: --engine ray reads \.csv"):
        find_sources([tmp_path / "t.json"])
    with pytest.raises(OptionError, match="is given twice"):
        find_sources([path, path])
    with pytest.raises(TableError, match=r"nothing\.csv does not exist"):
        find_sources([tmp_path / "nothing.csv"])
