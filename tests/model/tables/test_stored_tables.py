"""A table that is kept on disk is the table in memory, wherever its file is cut into blocks."""

from __future__ import annotations

import gzip
import io
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from murho.model.errors import MurhoError
from murho.model.tables import csv_reader, formats
from murho.model.tables.files import read_table
from murho.model.tables.formats import notes_of
from murho.model.training import prepared_table
from murho.model.training.options import make_options
from murho.model.training.prepared_table import prepare_table, rows_for_budget
from tests.support import write_table

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


def on_disk(path: Path, monkeypatch: pytest.MonkeyPatch, block: int = csv_reader._BLOCK_BYTES) -> pa.Table:
    with monkeypatch.context() as patch:
        patch.setattr(formats, "LEAST_BYTES", 0)
        patch.setattr(csv_reader, "_BLOCK_BYTES", block)
        return read_table(path)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("odd", ODD)
def test_borders_of_blocks_change_nothing(
    tmp_path: Path, odd: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, csv_of({odd: ODD[odd], **PLAIN}))
    before = pa.total_allocated_bytes()
    stored, whole = on_disk(path, monkeypatch, block), read_table(path)
    assert stored.column(0).num_chunks > 1
    assert stored.to_pydict() == whole.to_pydict()
    assert outcome(stored) == outcome(whole)
    del whole
    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize(
    "options", [{"columns": {"leading_zeros": {"kind": "categorical"}}}, {"weight": "iso_dates"}, {"ignore": ["x"]}]
)
def test_options_and_refusals_are_the_same(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, csv_of(ODD | PLAIN, "\r\n"))
    assert outcome(on_disk(path, monkeypatch, 1_000), **options) == outcome(read_table(path), **options)


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
def test_files_are_the_same_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes) -> None:
    path = written(tmp_path, data, name)
    stored: list[Any] = []
    read: list[Any] = []
    for reader, said in ((lambda path: on_disk(path, monkeypatch), stored), (read_table, read)):
        try:
            table = reader(path)
            said += [table.column_names, notes_of(table), outcome(table)]
        except MurhoError as error:
            said.append(str(error))
    assert stored == read


def test_a_parquet_file_of_any_types_is_the_same_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    stored = on_disk(path, monkeypatch)
    assert stored.to_pydict() == read_table(path).to_pydict() == table.to_pydict()
    assert outcome(stored) == outcome(read_table(path))
    nested = pa.table({"y": [1.0, 2.0], "x": [{"a": 1}, {"a": 2}]})
    pa.parquet.write_table(nested, path)
    assert on_disk(path, monkeypatch).to_pydict() == nested.to_pydict()
    frame = pd.DataFrame({"c": pd.Categorical(["u", "v", "u"]), "y": [1.0, 2.0, 3.0]}, index=[5, 3, 4])
    frame.to_parquet(path)
    assert on_disk(path, monkeypatch).to_pydict() == {"c": ["u", "v", "u"], "y": [1.0, 2.0, 3.0]}
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(MurhoError, match="is not a whole Parquet file"):
        on_disk(path, monkeypatch)


@pytest.mark.parametrize("block", range(20, 44))
def test_a_line_end_within_a_cell_stays_whole_wherever_a_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    path = written(tmp_path, b'a,b\r\n1,"x\r\ny"\r\n2,"\rz\r\n"\r\n3,w\r\n')
    expected = {"a": ["1", "2", "3"], "b": ["x\r\ny", "z", "w"]}
    assert on_disk(path, monkeypatch, block).to_pydict() == expected


def test_a_training_samples_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_table, "FEWEST_SAMPLED_ROWS", 20)
    readable = {name: cells for name, cells in ODD.items() if "late" not in name and "last_row" not in name}
    path = written(tmp_path, csv_of(readable | PLAIN))
    options = make_options({"budget": 0.01})
    whole, stored = (
        rows_for_budget(prepare_table(table, "y", options))
        for table in (read_table(path), on_disk(path, monkeypatch, 1_000))
    )
    assert stored.table.to_pydict() == whole.table.to_pydict()
    assert list(stored.columns) == list(whole.columns)
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(stored.columns[name], column)
    everything = prepare_table(read_table(path), "y", options).columns
    assert whole.rows is not None
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(column, everything[name][whole.rows])


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_a_full_disk_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / name
    write_table(path, {"y": [1.0, 2.0], "x": ["a", "b"]})

    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    with pytest.raises(MurhoError, match=r"can't be read: No space left on device in .*: set TMPDIR"):
        on_disk(path, monkeypatch)
