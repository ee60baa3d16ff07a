"""Files as people have them: packed, in other encodings, from Excel, with an index that pandas wrote."""

from __future__ import annotations

import builtins
import gc
import gzip
import io
import json
import os
import tempfile
import zipfile
from datetime import datetime, time
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.errors import MurhoError, OptionError, TableError
from murho.model.tables import csv_reader, formats
from murho.model.tables.csv_reader import parse_csv
from murho.model.tables.files import read_table, require_file
from murho.model.tables.formats import notes_of
from murho.model.tables.inference import infer_column
from murho.model.tables.overrides import FileForm
from murho.model.tables.writers import csv_writer
from murho.model.training import prepared_table
from murho.model.training.options import make_options
from murho.model.training.prepared_table import prepare_table, rows_for_budget
from tests.support import write_table


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

    def test_blanks_around_cells_are_dropped_and_words_stay(self, tmp_path: Path) -> None:
        table = read_table(written(tmp_path, 'a , b\n NA ,1\n"",2\n?,3\n x ,4\nnone,5\n'))
        assert table.to_pydict() == {"a": ["NA", None, "?", "x", "none"], "b": ["1", "2", "3", "4", "5"]}

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

    @pytest.mark.parametrize(
        ("text", "parts"),
        [
            ("", ["is empty"]),
            ("\n \n", ["is empty"]),
            ("a,b\n1,2\n\n3\n", ["line 4", "1 cells where the header has 2"]),
            ('a,b\n"x\ny",2\n1,2,3\n', ["line 4", "3 cells"]),
            ('a,b\n1,2\n"open,3\n4,5\n', ["line 3"]),
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

    def test_a_form_says_what_a_file_does_not(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = written(tmp_path, "made by a tool\nname,name\nŁódź,1\n".encode("cp1250"))
        form = FileForm(skip_lines=1, encoding="cp1250")
        assert read_table(path, form).to_pydict() == {"name": ["Łódź"], "name_2": ["1"]}
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
        table = read_table(Path("-"), form)
        assert notes_of(table) == ["names that were there before get a number: 'name_2'"]
        assert "all names are numbers" in notes_of(read_table(written(tmp_path, "5.1,3.5\n4.9,3.0\n", "b.csv")))[0]
        with pytest.raises(OptionError, match=r"--sheet is for Excel workbooks; this is a \.csv file"):
            read_table(path, FileForm(sheet="x"))


class TestJson:
    def test_objects_within_are_cells_that_can_not_be_used(self, tmp_path: Path) -> None:
        table = read_table(written(tmp_path, '{"a": {"b": 1}, "c": 2}\n{"a": {"b": 3}, "c": 4}\n', "a.jsonl"))
        assert infer_column(table.column("a"), "a").left_out == "cells of the type struct<b: int64> can't be used"

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
            ("1", ["expected a list of objects", "a number"]),
            ("[1]", ["row 1", "a number"]),
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


@pytest.mark.parametrize(
    "error", [pa.ArrowMemoryError("malloc failed"), pa.ArrowInvalid("Failed to launch worker thread")]
)
def test_out_of_memory_is_no_fault_of_a_table(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(pa.csv, "open_csv", failing)
    with pytest.raises(MemoryError):
        parse_csv(b"a\n1\n", "the body")


CSV = b"a,b\n1,x\n2,y\n"
TABLE = {"a": ["1", "2"], "b": ["x", "y"]}


def archive(**members: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as file:
        for name, data in members.items():
            file.writestr(name.replace("__dot__", "."), data)
    return sink.getvalue()


class TestPacked:
    def test_gzip_is_read_by_the_name_within(self, tmp_path: Path) -> None:
        assert read_table(written(tmp_path, gzip.compress(CSV), "a.csv.gz")).to_pydict() == TABLE
        lines = b'{"a": 1}\n{"a": 2}\n'
        assert read_table(written(tmp_path, gzip.compress(lines), "a.jsonl.gz")).to_pydict() == {"a": [1, 2]}

    def test_a_zip_with_one_table_is_read_and_said(self, tmp_path: Path) -> None:
        data = archive(data__dot__csv=CSV, README=b"hello", __MACOSX=b"")
        table = read_table(written(tmp_path, data, "a.zip"))
        assert table.to_pydict() == TABLE
        assert notes_of(table) == ["read data.csv in the archive, beside 2 other files"]

    def test_a_zip_with_several_tables_or_none_is_refused(self, tmp_path: Path) -> None:
        assert "holds 2 tables (a.csv, b.csv)" in refusal(
            written(tmp_path, archive(a__dot__csv=CSV, b__dot__csv=CSV), "a.zip")
        )
        assert "holds 0 tables (it is empty)" in refusal(written(tmp_path, archive(), "b.zip"))

    @pytest.mark.parametrize("name", ["a.csv.gz", "a.zip", "a.xlsx"])
    def test_damaged_files_are_refused(self, tmp_path: Path, name: str) -> None:
        assert "is not a whole" in refusal(written(tmp_path, b"nothing of the kind", name))

    def test_a_cut_gzip_file_is_refused(self, tmp_path: Path) -> None:
        assert "is not a whole gzip file" in refusal(written(tmp_path, gzip.compress(CSV * 100)[:-9], "a.csv.gz"))


class TestEncodings:
    @pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
    def test_utf_16_is_read_and_said(self, tmp_path: Path, encoding: str) -> None:
        table = read_table(written(tmp_path, "name,ort\nJörg,Köln\n".encode(encoding), "a.csv"))
        assert table.to_pydict() == {"name": ["Jörg"], "ort": ["Köln"]}
        assert notes_of(table) == [f"the file is in {encoding.upper()}"]

    def test_latin_1_is_read_and_said(self, tmp_path: Path) -> None:
        table = read_table(written(tmp_path, "name,price\nJörg,5 €\n".encode("cp1252"), "a.csv"))
        assert table.to_pydict() == {"name": ["Jörg"], "price": ["5 €"]}
        assert "read as Latin-1" in notes_of(table)[0]

    def test_utf_8_beyond_a_block_is_no_latin_1(self, tmp_path: Path) -> None:
        data = ("a\n" + "ü" * (2**20) + "\n").encode()
        assert notes_of(read_table(written(tmp_path, data, "a.csv"))) == []


class TestJsonLines:
    @pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.txt", "a.csv", "a.log", "a"])
    def test_json_lines_are_read_under_any_name(self, tmp_path: Path, name: str) -> None:
        assert read_table(written(tmp_path, b'{"a": 1}\n{"a": 2}\n', name)).to_pydict() == {"a": [1, 2]}


class TestExcel:
    @staticmethod
    def book(*sheets: list[list[Any]]) -> bytes:
        book = openpyxl.Workbook()
        book.remove(book.active)
        for number, rows in enumerate(sheets, start=1):
            sheet = book.create_sheet(f"Sheet{number}")
            for row in rows:
                sheet.append(row)
        sink = io.BytesIO()
        book.save(sink)
        return sink.getvalue()

    def test_another_sheet_is_read_if_it_is_named(self, tmp_path: Path) -> None:
        path = written(tmp_path, self.book([["a"], [1]], [["b"], [2]]), "a.xlsx")
        assert read_table(path, FileForm(sheet="Sheet2")).to_pydict() == {"b": [2]}
        with pytest.raises(OptionError, match="no such sheet with cells; there are 'Sheet1', 'Sheet2'"):
            read_table(path, FileForm(sheet="b"))

    def test_the_first_sheet_with_cells_is_read(self, tmp_path: Path) -> None:
        rows: list[list[Any]] = [
            [None, None, None, None, None],
            ["n", "text", "day", "clock", "mixed"],
            [1, " a ", datetime(2020, 1, 2), time(1, 30), 5],
            [2.5, "#N/A", None, None, "x"],
        ]
        table = read_table(written(tmp_path, self.book([], rows, [["other"], [1]]), "a.xlsx"))
        assert table.to_pylist() == [
            {
                "n": 1.0,
                "text": "a",
                "day": datetime(2020, 1, 2),
                "clock": time(1, 30),
                "mixed": "5",
            },
            {"n": 2.5, "text": None, "day": None, "clock": None, "mixed": "x"},
        ]
        assert notes_of(table) == ["read the first of 2 sheets with cells: 'Sheet2', 'Sheet3'; --sheet takes another"]

    def test_an_empty_workbook_is_refused(self, tmp_path: Path) -> None:
        assert "no sheet has cells" in refusal(written(tmp_path, self.book([]), "a.xlsx"))

    def broken(self, old: str, new: str) -> bytes:
        """A workbook of 2 rows, with something else in its sheet."""
        sink = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self.book([["a", "b"], [1, 2]]))) as book, zipfile.ZipFile(sink, "w") as other:
            for name in book.namelist():
                part = book.read(name).decode()
                if name.endswith("sheet1.xml"):
                    assert old in part
                    part = part.replace(old, new)
                other.writestr(name, part)
        return sink.getvalue()

    @pytest.mark.parametrize(
        ("old", "new", "words"),
        [
            ('<row r="2"', '<row r="999999999999"', "more than 1048576 rows"),
            ('<row r="2"', '<row r="two"', "is not a whole Excel workbook"),
            ("</sheetData>", "", "is not a whole Excel workbook"),
            ('<c r="B2"', '<c r="ZZZZZZ2"', "is not a whole Excel workbook"),
            ("<v>1</v>", '<v>99</v></c><c r="A2" t="s"><v>99</v>', "is not a whole Excel workbook"),
        ],
    )
    def test_a_broken_sheet_is_refused(self, tmp_path: Path, old: str, new: str, words: str) -> None:
        assert words in refusal(written(tmp_path, self.broken(old, new), "a.xlsx"))

    def test_the_size_that_a_sheet_says_is_not_believed(self, tmp_path: Path) -> None:
        # Each row had 16,384 cells, and there were a million rows.
        book = self.broken('<dimension ref="A1:B2"', '<dimension ref="A1:XFD1048576"')
        assert read_table(written(tmp_path, book, "a.xlsx")).to_pydict() == {"a": [1.0], "b": [2.0]}

    def test_rows_of_cells_far_to_the_right_are_limited(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(formats, "_MOST_CELLS", 100_000)
        more = "".join(f'<row r="{row}"><c r="XFD{row}"><v>1</v></c></row>' for row in range(3, 20))
        book = self.broken("</sheetData>", f"{more}</sheetData>")
        assert "100000 cells: save it as CSV" in refusal(written(tmp_path, book, "a.xlsx"))

    def test_a_bomb_is_refused_before_it_is_unpacked(self, tmp_path: Path) -> None:
        sink = io.BytesIO(self.book([["a"], [1]]))
        with zipfile.ZipFile(sink, "a", zipfile.ZIP_DEFLATED) as book, book.open("xl/more.xml", "w") as part:
            for _ in range(1025):
                part.write(bytes(2**20))
        assert "unpacks to 10" in refusal(written(tmp_path, sink.getvalue(), "a.xlsx"))

    def test_without_the_package_the_message_says_how_to_install_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = builtins.__import__

        def without(name: str, *rest: Any) -> Any:
            if name == "openpyxl":
                raise ModuleNotFoundError("No module named 'openpyxl'", name="openpyxl")
            return real(name, *rest)

        path = written(tmp_path, self.book([["a"], [1]]), "a.xlsx")
        monkeypatch.setattr(builtins, "__import__", without)
        message = refusal(path)
        assert "take the package openpyxl" in message
        assert "pip install '.[excel]'" in message


class TestIndexes:
    def test_the_index_of_a_data_frame_is_dropped_and_said(self, tmp_path: Path) -> None:
        frame = pd.DataFrame({"a": [1, 2, 3], "b": list("xyz")}).iloc[[2, 0, 1]]
        frame.to_csv(tmp_path / "a.csv")
        table = read_table(tmp_path / "a.csv")
        assert table.column_names == ["a", "b"]
        assert notes_of(table) == [
            "column 1 has no name and numbers the rows, as the index that df.to_csv() writes: dropped"
        ]
        frame.to_parquet(tmp_path / "a.parquet")
        table = read_table(tmp_path / "a.parquet")
        assert table.column_names == ["a", "b"]
        assert "is the index that pandas writes: dropped" in notes_of(table)[0]

    def test_an_index_of_names_gets_a_name(self, tmp_path: Path) -> None:
        table = read_table(written(tmp_path, b",a\nu,1\nv,2\n", "a.csv"))
        assert table.column_names == ["index", "a"]
        assert notes_of(table) == ["column 1 has no name, and is called 'index'"]

    def test_the_empty_column_after_a_last_separator_is_dropped(self, tmp_path: Path) -> None:
        assert read_table(written(tmp_path, b"a,b,\n1,x,\n2,y,\n", "a.csv")).to_pydict() == TABLE


class TestChecks:
    def test_a_mistyped_file_gets_a_hint(self, tmp_path: Path) -> None:
        written(tmp_path, CSV, "rents.csv")
        with pytest.raises(TableError, match=r"rent\.csv does not exist: did you mean .*rents\.csv\?"):
            require_file(tmp_path / "rent.csv")


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
    # Arrow's threads may let go of their last buffers a moment later.
    until = monotonic() + 5
    while pa.total_allocated_bytes() > before and monotonic() < until:
        gc.collect()
        sleep(0.01)
    assert pa.total_allocated_bytes() <= before


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
