from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.errors import TableError
from murho.model.tables.csv_reader import parse_csv
from murho.model.tables.files import read_table
from murho.model.tables.writers import csv_writer
from tests.support import ROOT, write_table

CARS = ROOT / "examples" / "cars.csv"


def written(directory: Path, text: str | bytes, name: str = "table.csv") -> Path:
    path = directory / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(TableError) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


class TestCsv:
    @pytest.mark.parametrize("rows", [1, 50_000])
    def test_a_quote_that_is_not_closed_swallows_no_rows(self, tmp_path: Path, rows: int) -> None:
        path = written(tmp_path, "x,y\n" + "1,a\n" * rows + '2,"b\n' + "3,c\n" * 2)
        assert f"line {rows + 2}: a quote opens a cell there and isn't closed" in refusal(path)

    def test_cars_are_read_as_text_with_their_missing_cells(self) -> None:
        table = read_table(CARS)
        assert table.num_rows == 406
        assert table.column_names[0] == "Miles_per_Gallon"
        assert set(table.schema.types) == {pa.string()}
        assert {name: table[name].null_count for name in table.column_names if table[name].null_count} == {
            "Miles_per_Gallon": 8,
            "Horsepower": 6,
        }

    def test_missing_tokens_are_null_and_blanks_around_cells_are_dropped(self, tmp_path: Path) -> None:
        table = read_table(written(tmp_path, 'a , b\n NA ,1\n"",2\n?,3\n x ,4\nnone,5\n'))
        assert table.to_pydict() == {"a": [None, None, None, "x", "none"], "b": ["1", "2", "3", "4", "5"]}

    @pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
    def test_the_separator_is_found(self, tmp_path: Path, separator: str) -> None:
        lines = [["name", "a"], ["1,5" if separator != "," else "1.5", "2"]]
        table = read_table(written(tmp_path, "\n".join(separator.join(line) for line in lines)))
        assert table.column_names == lines[0]
        assert table.to_pylist() == [dict(zip(*lines, strict=True))]

    def test_windows_lines_a_byte_order_mark_and_blank_lines_change_nothing(self, tmp_path: Path) -> None:
        plain = read_table(written(tmp_path, "a,b\n1,2\n3,4\n"))
        odd = read_table(written(tmp_path, b"\xef\xbb\xbf\r\n\r\na,b\r\n1,2\r\n\r\n3,4", "odd.csv"))
        assert odd.equals(plain)

    def test_quoted_cells_may_hold_separators_quotes_and_line_ends(self, tmp_path: Path) -> None:
        table = read_table(written(tmp_path, '"a\nb",c\n"1,""2""\n3",4\n'))
        assert table.to_pydict() == {"a\nb": ['1,"2"\n3'], "c": ["4"]}

    def test_a_header_alone_is_a_table_without_rows(self, tmp_path: Path) -> None:
        for text in ("a,b\n", "a,b"):
            table = read_table(written(tmp_path, text))
            assert (table.num_rows, table.column_names) == (0, ["a", "b"])

    @pytest.mark.parametrize(
        ("text", "parts"),
        [
            ("", ["is empty"]),
            ("\n \n", ["is empty"]),
            ("a,b\n1,2\n\n3\n", ["line 4", "1 cells where the header has 2"]),
            ('a,b\n"x\ny",2\n1,2,3\n', ["line 4", "3 cells"]),
            ('a,b\n1,2\n"open,3\n4,5\n', ["line 3"]),
            ("a,b,a\n1,2,3\n", ["2 columns are named 'a'"]),
            ("a,,b\n1,2,3\n", ["column 2 has no name"]),
            ("a,ü\n".encode() + "é,1\n".encode("latin-1"), ["line 2", "0xe9", "UTF-8"]),
        ],
    )
    def test_what_is_wrong_is_said_with_its_line(self, tmp_path: Path, text: str | bytes, parts: list[str]) -> None:
        message = refusal(written(tmp_path, text))
        assert all(part in message for part in parts), message

    def test_a_bad_line_far_down_a_large_file_is_found(self, tmp_path: Path) -> None:
        lines = [b"a,b"] + [b"%d,%s" % (row, b"x" * 100) for row in range(200_000)]
        lines[190_000] += b",1"
        assert "line 190001" in refusal(written(tmp_path, b"\n".join(lines)))


class TestJson:
    def test_records_become_columns(self, tmp_path: Path) -> None:
        records = [{"a": 1, "b": "x", "c": True}, {"a": None, "d": 2.5, "c": None}]
        expected = {"a": [1, None], "b": ["x", None], "c": [True, None], "d": [None, 2.5]}
        lines = "\n\n".join(json.dumps(record) for record in records)
        assert read_table(written(tmp_path, json.dumps(records), "a.json")).to_pydict() == expected
        assert read_table(written(tmp_path, lines, "a.jsonl")).to_pydict() == expected

    def test_a_column_of_texts_and_numbers_is_text(self, tmp_path: Path) -> None:
        table = read_table(written(tmp_path, '[{"a": 4.0}, {"a": "4"}, {"a": true}]', "a.json"))
        assert table.to_pydict() == {"a": ["4", "4", "true"]}

    def test_integers_beyond_64_bits_are_texts_of_numbers(self, tmp_path: Path) -> None:
        table = read_table(written(tmp_path, '[{"a": 1e999, "b": 100000000000000000000}]', "a.json"))
        assert table.to_pydict() == {"a": [float("inf")], "b": ["100000000000000000000"]}

    @pytest.mark.parametrize(
        ("text", "parts"),
        [
            ("[]", ["no rows"]),
            ("[{}]", ["no columns"]),
            ('{"a": [1]}', ["row 1", "column 'a'", "a list"]),
            ("1", ["expected a list of objects", "a number"]),
            ("[1]", ["row 1", "a number"]),
            ('[{"a": 1}, {"a": [2]}]', ["row 2", "column 'a'", "a list"]),
            ('[{"a": 1},', ["not valid JSON"]),
            ("[" * 200_000, ["not valid JSON"]),
            (b'[{"a": "\xe9\xc3\xa9"}]', ["not UTF-8"]),
            ('[{"": 1}]', ["has no name"]),
        ],
    )
    def test_what_is_wrong_is_said(self, tmp_path: Path, text: str | bytes, parts: list[str]) -> None:
        message = refusal(written(tmp_path, text, "a.json"))
        assert all(part in message for part in parts), message

    def test_a_broken_line_is_named(self, tmp_path: Path) -> None:
        assert "line 3" in refusal(written(tmp_path, '{"a": 1}\n\n{"a": }\n', "a.ndjson"))


class TestBinary:
    table = pa.table({"a": [1, None, 3], "b": ["x", "y", None], "c": pa.array([1, 2, 3], pa.timestamp("ns", "UTC"))})

    def test_parquet_and_arrow_keep_their_types(self, tmp_path: Path) -> None:
        pa.parquet.write_table(self.table, tmp_path / "a.parquet")
        pa.feather.write_feather(self.table, tmp_path / "a.feather", compression="uncompressed")
        with pa.ipc.new_file(tmp_path / "a.arrow", self.table.schema) as file:
            file.write_table(self.table)
        with pa.ipc.new_stream(tmp_path / "a.arrows", self.table.schema) as stream:
            stream.write_table(self.table)
        for path in sorted(tmp_path.iterdir()):
            assert read_table(path).equals(self.table), path.name

    def test_directories_named_like_partitions_add_no_columns(self, tmp_path: Path) -> None:
        directory = tmp_path / "region=east"
        directory.mkdir()
        pa.parquet.write_table(self.table, directory / "a.parquet")
        assert read_table(directory / "a.parquet").column_names == ["a", "b", "c"]

    @pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
    def test_damaged_files_are_refused(self, tmp_path: Path, name: str) -> None:
        write: Any = pa.parquet.write_table if name.endswith("parquet") else pa.feather.write_feather
        write(self.table, tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        for data in (b"", b"x" * 100, whole[: len(whole) // 2], whole[:-1]):
            assert "not a whole" in refusal(written(tmp_path, data, name))

    def test_names_must_differ(self, tmp_path: Path) -> None:
        pa.feather.write_feather(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "a.arrow")
        assert "2 columns are named 'a'" in refusal(tmp_path / "a.arrow")


class TestFiles:
    def test_a_missing_file_a_directory_and_an_unknown_extension_are_named(self, tmp_path: Path) -> None:
        assert "does not exist" in refusal(tmp_path / "none.csv")
        (tmp_path / "d.csv").mkdir()
        assert "is a directory" in refusal(tmp_path / "d.csv")
        assert "'.xls' is not known; use one of .csv" in refusal(written(tmp_path, "a", "a.xls"))
        assert "'' is not known" in refusal(written(tmp_path, "a", "noextension"))

    def test_an_unreadable_file_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def denied(_: Path, __: str) -> None:
            raise PermissionError(13, "Permission denied")  # as root may read everything, chmod is no test

        path = written(tmp_path, "a,b\n1,2\n")
        monkeypatch.setattr(Path, "open", denied)
        assert "can't be read: Permission denied" in refusal(path)


class TestWriting:
    @given(
        numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5),
        text=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
    )
    def test_csv_is_read_back(self, tmp_path_factory: pytest.TempPathFactory, numbers: list[float], text: str) -> None:
        path = tmp_path_factory.mktemp("csv") / "a.csv"
        word = f"<{text}>"  # no blanks at its ends, and no missing token
        write_table(path, {"number": np.array(numbers), "text": [word] * len(numbers)})
        table = read_table(path)
        assert [float(cell) for cell in table["number"].to_pylist()] == numbers
        assert table["text"].to_pylist() == [word] * len(numbers)

    def test_csv_has_quotes_only_where_they_are_needed(self, tmp_path: Path) -> None:
        write_table(tmp_path / "a.csv", {"mean": np.array([1.5, 2.0]), "o": pa.array(["USA", None])})
        assert (tmp_path / "a.csv").read_text() == "mean,o\n1.5,USA\n2,\n"
        write_table(tmp_path / "b.csv", {"a,b": np.array([1.5]), "o": ["x,y"]})
        assert (tmp_path / "b.csv").read_text() == '"a,b",o\n1.5,"x,y"\n'

    def test_without_a_path_csv_goes_to_stdout(self, capsys: pytest.CaptureFixture[str]) -> None:
        with csv_writer(None) as write:
            write(pa.table({"mean": [0.1], "p5": [3]}))
        assert capsys.readouterr().out == "mean,p5\n0.1,3\n"

    def test_parquet_is_read_back(self, tmp_path: Path) -> None:
        matrix = np.arange(6.0).reshape(3, 2)
        write_table(tmp_path / "a.parquet", {"a": matrix[:, 0], "b": matrix[:, 1]})
        assert read_table(tmp_path / "a.parquet").to_pydict() == {"a": [0.0, 2.0, 4.0], "b": [1.0, 3.0, 5.0]}

    def test_a_failed_write_leaves_the_old_file_and_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        path = written(tmp_path, "old", "a.csv")
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(TableError, match="can't be written: No space left on device"):
            write_table(path, {"a": [1]})
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    def test_what_can_not_be_written_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(TableError, match="No such file or directory"):
            write_table(tmp_path / "none" / "a.csv", {"a": [1]})
        with pytest.raises(TableError, match=r"write \.parquet instead"):
            write_table(tmp_path / "a.csv", {"a": [[1]]})
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error", [pa.ArrowMemoryError("malloc failed"), pa.ArrowInvalid("Failed to launch worker thread")]
)
def test_out_of_memory_is_no_fault_of_a_table(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(pa.csv, "open_csv", failing)
    with pytest.raises(MemoryError):
        parse_csv(b"a\n1\n", "the body")
