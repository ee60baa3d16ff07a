"""Files as people have them: packed, in other encodings, from Excel, with an index that pandas wrote."""

from __future__ import annotations

import builtins
import gzip
import io
import zipfile
from datetime import datetime, time
from typing import TYPE_CHECKING, Any

import openpyxl
import pandas as pd
import pyarrow as pa
import pytest

from murho.model.errors import TableError
from murho.model.tables import formats
from murho.model.tables.files import read_table, require_file
from murho.model.tables.formats import notes_of, with_notes

if TYPE_CHECKING:
    from pathlib import Path

CSV = b"a,b\n1,x\n2,y\n"
TABLE = {"a": ["1", "2"], "b": ["x", "y"]}


def written(directory: Path, data: bytes, name: str) -> Path:
    path = directory / name
    path.write_bytes(data)
    return path


def archive(**members: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as file:
        for name, data in members.items():
            file.writestr(name.replace("__dot__", "."), data)
    return sink.getvalue()


def refusal(path: Path) -> str:
    with pytest.raises(TableError) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


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

    def test_a_list_is_read_under_the_name_of_lines(self, tmp_path: Path) -> None:
        assert read_table(written(tmp_path, b'[{"a": 1},\n {"a": 2}]', "a.jsonl")).to_pydict() == {"a": [1, 2]}


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
        assert notes_of(table) == ["read the sheet 'Sheet2', the first of 2 with cells"]

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

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
    def test_a_cut_workbook_is_refused(self, tmp_path: Path, share: float) -> None:
        data = self.book([["a"], [1]])
        assert "Excel" in refusal(written(tmp_path, data[: int(share * len(data))], "a.xlsx"))

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

    def test_what_was_noted_before_stays(self, tmp_path: Path) -> None:
        notes = notes_of(read_table(written(tmp_path, ",a\n1,x\n2,y\n".encode("utf-16"), "a.csv")))
        assert [note.partition(" ")[0] for note in notes] == ["the", "column"]

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

    def test_notes_add_up_and_survive_a_choice_of_rows(self) -> None:
        table = with_notes(with_notes(pa.table({"a": [1, 2]}), ["one"]), ["two"])
        assert notes_of(table.take([1])) == ["one", "two"]
        assert notes_of(pa.table({"a": [1]})) == []
