"""A table that is kept packed is the table that is read at once, wherever its file is cut into blocks."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from murho.model.errors import MurhoError
from murho.model.tables import files, formats
from murho.model.tables.files import StoredTable, open_table, read_table, store_csv
from murho.model.tables.formats import notes_of
from murho.model.training import prepared_table
from murho.model.training.options import make_options
from murho.model.training.prepared_table import prepare_table, rows_for_budget

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 60
BLOCKS = (90, 128, 301)
PLAIN = {"y": [f"{row * 37 % 11}.5" for row in range(ROWS)], "x": [f"{row * 7 % 13}" for row in range(ROWS)]}


def last(value: str, others: list[str]) -> list[str]:
    return [*others[:-1], value]


ODD: dict[str, list[str]] = {
    "currency": [f'"${row + 1},{row * 13 % 900 + 100}.50"' for row in range(ROWS)],
    "unit_late": [f"{row} lb" if row > 50 else f"{row}" for row in range(ROWS)],
    "day_first_in_the_last_row": last("31/12/2020", [f"0{row % 9 + 1}/0{row % 7 + 1}/2020" for row in range(ROWS)]),
    "iso_dates": [f"2020-01-{row % 28 + 1:02}" for row in range(ROWS)],
    "missing": [["1.5", "", "NA", " ? ", "n/a", "2"][row % 6] for row in range(ROWS)],
    "late_category": last("new", ["a", "b", "c"] * (ROWS // 3)),
    "text_in_the_last_row": last("much", [str(row * 3 % 17) for row in range(ROWS)]),
    "decimal_comma_in_the_last_row": last('"0,5"', [f'"{row + 1},234"' for row in range(ROWS)]),
    "leading_zeros": [f"0{row % 7}" for row in range(ROWS)],
    "quoted": [f'"say ""{row % 4}""\nor {row % 4},\r\n no"' for row in range(ROWS)],
    "blanks": [f"  w{row % 3} " for row in range(ROWS)],
    "empty": [""] * ROWS,
    "words": last("unknown", [f"{row % 5}.25" for row in range(ROWS)]),
    "wide_characters": [["é", "漢字", "🚲"][row % 3] for row in range(ROWS)],
}


def csv_of(columns: dict[str, list[str]], end: str = "\n") -> bytes:
    lines = [",".join(columns), *(",".join(cells) for cells in zip(*columns.values(), strict=True))]
    return (end.join(lines) + end).encode()


def written(directory: Path, data: bytes, name: str = "table.csv") -> Path:
    path = directory / name
    path.write_bytes(data)
    return path


def outcome(table: Any, **options: Any) -> Any:
    """What a training makes of a table: its report, canonical columns and targets, or the message of its refusal."""
    try:
        prepared = prepare_table(table, "y", make_options(options))
    except MurhoError as error:
        return str(error)
    columns = {name: [str(cell) for cell in column] for name, column in prepared.columns.items()}
    return prepared.report().to_json(), prepared.plan, columns, prepared.targets.tolist()


@pytest.fixture
def all_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LEAST_BYTES", 0)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("odd", ODD)
def test_borders_of_blocks_change_nothing(tmp_path: Path, odd: str, block: int) -> None:
    path = written(tmp_path, csv_of({odd: ODD[odd], **PLAIN}))
    stored, whole = store_csv(path, block_bytes=block), read_table(path)
    assert isinstance(stored, StoredTable)
    assert stored.num_rows == ROWS
    assert stored.slice(0, ROWS).num_columns == 3
    for name in whole.column_names:
        assert stored.column(name).num_chunks > 0
        assert stored.column(name).to_pylist() == whole.column(name).to_pylist()
    assert outcome(stored) == outcome(whole)


@pytest.mark.parametrize(
    "options", [{"columns": {"leading_zeros": {"kind": "categorical"}}}, {"weight": "iso_dates"}, {"ignore": ["x"]}]
)
def test_options_and_refusals_are_the_same(tmp_path: Path, options: dict[str, Any]) -> None:
    path = written(tmp_path, csv_of(ODD | PLAIN, "\r\n"))
    stored = store_csv(path, block_bytes=1_000)
    assert outcome(stored, **options) == outcome(read_table(path), **options)


def test_any_rows_of_a_stored_table_are_those_of_the_table(tmp_path: Path) -> None:
    path = written(tmp_path, csv_of(ODD | PLAIN))
    stored, whole = store_csv(path, block_bytes=1_000), read_table(path)
    assert isinstance(stored, StoredTable)
    for start, length in ((0, 5), (7, 30), (55, 100), (60, 1), (0, ROWS)):
        assert stored.slice(start, length).to_pydict() == whole.slice(start, length).to_pydict()
    rows = pa.array([59, 0, 31, 31])
    assert stored.take(rows).to_pydict() == whole.take(rows).to_pydict()
    fewer = stored.drop_columns(["x", "missing"])
    assert fewer.column_names == [name for name in whole.column_names if name not in ("x", "missing")]
    assert fewer.column(0).to_pylist() == stored.column("currency").to_pylist()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("index.csv", csv_of({"": [str(row) for row in range(ROWS)], **PLAIN})),
        ("names.csv", csv_of({"": [f"n{row}" for row in range(ROWS)], **PLAIN})),
        ("mark.csv", b"\xef\xbb\xbf\r\n\r\n" + csv_of(PLAIN, "\r\n")),
        ("semicolons.csv", csv_of(PLAIN).replace(b",", b";")),
        ("packed.csv.gz", gzip.compress(csv_of(PLAIN)[:100]) + gzip.compress(csv_of(PLAIN)[100:])),
        ("half.csv.gz", gzip.compress(csv_of(PLAIN))[:-20]),
        ("utf16.csv", csv_of(PLAIN).decode().encode("utf-16")),
        ("latin.csv", csv_of(PLAIN | {"city": ["Zürich"] * ROWS}).decode().encode("latin-1")),
        ("lines.csv", b'{"y": 1.5, "x": 2}\n{"y": 2.5, "x": 1}\n{"y": 3.5, "x": 7}\n'),
        ("ragged.csv", csv_of(PLAIN) + b"1,2,3\n"),
        ("open.csv", csv_of(PLAIN) + b'"1,2\n'),
        ("damaged.csv", csv_of(PLAIN) + b"1,\xff\n"),
        ("twice.csv", csv_of(PLAIN).replace(b"y,x", b"y,y")),
        ("header.csv", b"y,x\n"),
        ("empty.csv", b"\n \n"),
        ("long.csv", csv_of(PLAIN | {"text": ["a" * 2**20 + str(row % 2) for row in range(3)] + ["b"] * (ROWS - 3)})),
    ],
)
def test_files_are_opened_as_they_are_read(tmp_path: Path, all_stored: None, name: str, data: bytes) -> None:
    path = written(tmp_path, data, name)
    opened: list[Any] = []
    read: list[Any] = []
    for reader, said in ((open_table, opened), (read_table, read)):
        try:
            table = reader(path)
            said += [table.column_names, notes_of(table), outcome(table)]
        except MurhoError as error:
            said.append(str(error))
    assert opened == read


def test_a_parquet_file_is_its_own_store(tmp_path: Path, all_stored: None) -> None:
    generator = np.random.default_rng(0)
    table = pa.table(
        {
            "y": generator.normal(size=ROWS),
            "when": pa.array(np.arange(ROWS) * 86_400_000, pa.timestamp("ms")),
            "kind": pa.array(["a", "b", None] * (ROWS // 3)).dictionary_encode(),
            "a.b": pa.array(range(ROWS), pa.int8()),
        }
    )
    path = tmp_path / "table.parquet"
    pa.parquet.write_table(table, path, row_group_size=7)
    opened = open_table(path)
    assert isinstance(opened, StoredTable)
    assert outcome(opened) == outcome(read_table(path))
    nested = pa.table({"y": [1.0, 2.0], "x": [{"a": 1}, {"a": 2}]})
    pa.parquet.write_table(nested, path)
    assert isinstance(open_table(path), pa.Table)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(MurhoError, match="is not a whole Parquet file"):
        open_table(path)


@pytest.mark.parametrize("block", range(20, 44))
def test_a_line_end_within_a_cell_stays_whole_wherever_a_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    path = written(tmp_path, b'a,b\r\n1,"x\r\ny"\r\n2,"\rz\r\n"\r\n3,w\r\n')
    expected = {"a": ["1", "2", "3"], "b": ["x\r\ny", "z", "w"]}
    stored = store_csv(path, block_bytes=block)
    assert stored is not None
    assert stored.slice(0, 3).to_pydict() == expected
    monkeypatch.setattr(formats, "_BLOCK_BYTES", block)
    assert read_table(path).to_pydict() == expected


def test_a_training_samples_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_table, "FEWEST_SAMPLED_ROWS", 20)
    readable = {name: cells for name, cells in ODD.items() if "late" not in name and "last_row" not in name}
    path = written(tmp_path, csv_of(readable | PLAIN))
    options = make_options({"budget": 0.01})
    whole, stored = (
        rows_for_budget(prepare_table(table, "y", options), options)
        for table in (read_table(path), store_csv(path, block_bytes=1_000))
    )
    assert stored.table.to_pydict() == whole.table.to_pydict()
    assert list(stored.columns) == list(whole.columns)
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(stored.columns[name], column)
    everything = prepare_table(read_table(path), "y", options).columns
    assert whole.rows is not None
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(column, everything[name][whole.rows])


def test_small_files_are_read_at_once(tmp_path: Path) -> None:
    assert isinstance(open_table(written(tmp_path, csv_of(PLAIN))), pa.Table)
