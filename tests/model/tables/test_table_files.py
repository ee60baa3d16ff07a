"""Files as people have them: packed, in other encodings, from Excel, with an index that pandas wrote."""

import gc
import gzip
import io
import json
import sys
import tempfile
import zipfile
from datetime import datetime, time
from pathlib import Path
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
from murho.model.tables.formats import notes_of
from murho.model.tables.overrides import FileForm
from murho.model.tables.table_files import read_table
from murho.model.training.options import make_options
from murho.model.training.prepared_table import prepare_table
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
        table = read_table(written(tmp_path, f"name{separator}a\n1.5{separator}2"))
        assert table.to_pydict() == {"name": ["1.5"], "a": ["2"]}

    @pytest.mark.parametrize(
        "text",
        [
            '"name" "a"\n"1" "x y" 2\n"2" "z" 3\n',  # as R writes it: the names of the rows have no name
            "name\ta\n1\tx y\t2\n2\tz\t3\n",
            ' name   a\n\n "x y"  2\n  z     3 \n',
        ],
    )
    def test_blanks_part_columns_and_names_of_rows_have_none(self, tmp_path: Path, text: str) -> None:
        assert read_table(written(tmp_path, text)).to_pydict() == {"name": ["x y", "z"], "a": ["2", "3"]}

    @pytest.mark.parametrize("text", ["a word\none\ntwo words\n", "a\n1 2\n3 4\n", "a,b\n1,2,\n3,4,\n"])
    def test_blanks_of_a_text_part_nothing(self, tmp_path: Path, text: str) -> None:
        assert len(read_table(written(tmp_path, text)).column_names) == text.count(",") // 5 + 1

    def test_quoted_cells_may_hold_separators_quotes_and_line_ends(self, tmp_path: Path) -> None:
        table = read_table(written(tmp_path, '"a\nb",c\n"1,""2""\n3",4\n'))
        assert table.to_pydict() == {"a\nb": ['1,"2"\n3'], "c": ["4"]}

    @pytest.mark.parametrize(
        ("text", "parts"),
        [
            ("", ["is empty"]),
            ("a,b\n1,2\n\n3,4,5\n", ["line 4", "3 cells where the header has 2"]),
            ("a,,b\n1,2,3\n", ["column 2 has no name"]),
        ],
    )
    def test_what_is_wrong_is_said_with_its_line(self, tmp_path: Path, text: str | bytes, parts: list[str]) -> None:
        message = refusal(written(tmp_path, text))
        assert all(part in message for part in parts), message

    def test_a_bad_line_far_down_a_large_file_is_found(self, tmp_path: Path) -> None:
        lines = [b"a,b"] + [b"%d,%s" % (row, b"x" * 10_000) for row in range(2_000)]
        lines[1_900] += b",1"
        assert "line 1901" in refusal(written(tmp_path, b"\n".join(lines)))

    def test_a_form_says_what_a_file_does_not(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = written(tmp_path, "made by a tool\nname,name\nŁódź,1\n".encode("cp1250"))
        form = FileForm(skip_lines=1, encoding="cp1250")
        assert read_table(path, form).to_pydict() == {"name": ["Łódź"], "name_2": ["1"]}
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
        table = read_table(Path("-"), form)
        assert notes_of(table) == ["names that were there before get a number: 'name_2'"]
        with pytest.raises(OptionError, match=r"--sheet is for Excel workbooks; this is a \.csv file"):
            read_table(path, FileForm(sheet="x"))


class TestJson:
    def test_records_become_columns(self, tmp_path: Path) -> None:
        records = [{"a": 1, "b": "x", "c": True}, {"a": None, "d": 2.5, "c": None}]
        expected = {"a": [1, None], "b": ["x", None], "c": [True, None], "d": [None, 2.5]}
        lines = "\n\n".join(json.dumps(record) for record in records)
        assert read_table(written(tmp_path, json.dumps(records), "a.json")).to_pydict() == expected
        assert read_table(written(tmp_path, lines, "a.jsonl")).to_pydict() == expected

    def test_a_column_of_texts_and_numbers_is_text(self, tmp_path: Path) -> None:
        table = read_table(
            written(tmp_path, '[{"a": 4.0, "b": 100000000000000000000}, {"a": "4"}, {"a": true}]', "a.json")
        )
        assert table.to_pydict() == {"a": ["4", "4", "true"], "b": ["100000000000000000000", None, None]}

    @pytest.mark.parametrize(
        ("text", "parts"),
        [
            ("[]", ["no rows"]),
            ("[{}]", ["no columns"]),
            ("1", ["expected a list of objects", "found 1"]),
            ("[1]", ["row 1", "found 1"]),
            ("[" * 200_000, ["not valid JSON"]),
            ('{"a": 1}\n\n{"a": }\n', ["line 3"]),
            ('[{"": 1}]', ["has no name"]),
        ],
    )
    def test_what_is_wrong_is_said(self, tmp_path: Path, text: str | bytes, parts: list[str]) -> None:
        message = refusal(written(tmp_path, text, "a.json"))
        assert all(part in message for part in parts), message


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
        written(tmp_path, CSV, "rents.csv")
        assert "does not exist: did you mean" in refusal(tmp_path / "rent.csv")
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
        for name in ("a.json.gz", "a.txt.gz", "a.gz"):
            assert read_table(written(tmp_path, gzip.compress(lines), name)).to_pydict() == {"a": [1, 2]}
        for name in ("b.csv.gz", "b.zip", "b.xlsx"):
            assert "is not a whole" in refusal(written(tmp_path, b"nothing of the kind", name))
        assert "is not a whole gzip file" in refusal(written(tmp_path, gzip.compress(CSV * 100)[:-9], "a.csv.gz"))

    def test_a_zip_with_one_table_is_read_and_said_and_others_are_refused(self, tmp_path: Path) -> None:
        table = read_table(written(tmp_path, archive(data__dot__csv=CSV, README=b"hello", __MACOSX=b""), "a.zip"))
        assert table.to_pydict() == TABLE
        assert notes_of(table) == ["read data.csv in the archive, beside 2 other files"]
        several = written(tmp_path, archive(a__dot__csv=CSV, b__dot__csv=CSV), "b.zip")
        assert "holds 2 tables ('a.csv', 'b.csv')" in refusal(several)
        assert "holds 0 tables (it is empty)" in refusal(written(tmp_path, archive(), "b.zip"))


class TestEncodings:
    @pytest.mark.parametrize(("encoding", "note"), [("utf-16", "the file is in UTF-16"), ("cp1252", "read as Latin-1")])
    def test_other_encodings_are_read_and_said(self, tmp_path: Path, encoding: str, note: str) -> None:
        table = read_table(written(tmp_path, "name,price\nJörg,5 €\n".encode(encoding), "a.csv"))
        assert table.to_pydict() == {"name": ["Jörg"], "price": ["5 €"]}
        assert note in notes_of(table)[0]


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
            [None] * 5,
            ["n", "text", "day", "clock", "mixed"],
            [1, " a ", datetime(2020, 1, 2), time(1, 30), 5],
            [2.5, "#N/A", None, None, "x"],
        ]
        path = written(tmp_path, self.book([], rows, [["other"], [1]]), "a.xlsx")
        table = read_table(path)
        expected = [[1.0, "a", datetime(2020, 1, 2), time(1, 30), "5"], [2.5, None, None, None, "x"]]
        assert [list(row.values()) for row in table.to_pylist()] == expected
        assert notes_of(table) == ["read the first of 2 sheets with cells: 'Sheet2', 'Sheet3'; --sheet takes another"]
        assert read_table(path, FileForm(sheet="Sheet3")).to_pydict() == {"other": [1]}
        with pytest.raises(OptionError, match="no such sheet with cells; there are 'Sheet2', 'Sheet3'"):
            read_table(path, FileForm(sheet="b"))
        assert "no sheet has cells" in refusal(written(tmp_path, self.book([]), "b.xlsx"))

    def broken(self, old: str, new: str) -> bytes:
        """Return a workbook of 2 rows, with something else in its sheet."""
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
            ('<row r="2"', '<row r="999999999999"', "more than 1000 rows"),
            ("</sheetData>", "", "is not a whole Excel workbook"),
            ("<v>1</v>", '<v>99</v></c><c r="A2" t="s"><v>99</v>', "is not a whole Excel workbook"),
            ("<sheetPr>", '<sheetPr synchVertical="1">', "save it with another program, or as CSV"),
        ],
    )
    def test_a_broken_sheet_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, words: str
    ) -> None:
        monkeypatch.setattr(formats, "_MOST_ROWS", 1000)
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
        with zipfile.ZipFile(sink, "a") as book:
            book.writestr("xl/more.xml", b"")
            book.getinfo("xl/more.xml").file_size = 1025 * 2**20  # as its directory says
        assert "unpacks to 10" in refusal(written(tmp_path, sink.getvalue(), "a.xlsx"))

    def test_without_the_package_the_message_says_how_to_install_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = written(tmp_path, self.book([["a"], [1]]), "a.xlsx")
        monkeypatch.setitem(sys.modules, "openpyxl", None)  # what is imported then is not found
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
            "column 1 has no name and a new whole number in each row, as the index of df.to_csv(): dropped"
        ]
        frame.to_parquet(tmp_path / "a.parquet")
        table = read_table(tmp_path / "a.parquet")
        assert table.column_names == ["a", "b"]
        assert "is the index that pandas writes: dropped" in notes_of(table)[0]

    def test_an_index_of_names_gets_a_name(self, tmp_path: Path) -> None:
        table = read_table(written(tmp_path, b",a,\nu,1,\nv,2,\n", "a.csv"))
        assert table.column_names == ["index", "a"]
        assert notes_of(table)[0] == "column 1 has no name, and is called 'index'"


ROWS = 60
PLAIN = {"y": [f"{row * 37 % 11}.5" for row in range(ROWS)], "x": [f"{row * 7 % 13}" for row in range(ROWS)]}


def csv_of(columns: dict[str, list[str]], end: str = "\n") -> bytes:
    lines = [",".join(columns), *(",".join(cells) for cells in zip(*columns.values(), strict=True))]
    return (end.join(lines) + end).encode()


def outcome(table: Any, **options: Any) -> Any:
    """Return what a training makes of a table: report, canonical columns and targets, or why it refuses it."""
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


@pytest.mark.parametrize(
    ("cells", "end"),
    [
        ([f'"$1,{row * 13 % 900 + 100}.50"' for row in range(ROWS)], "\n"),
        (["2"] * (ROWS - 1) + ["much"], "\n"),
        ([f'"say ""{row % 4}""\nor,\r\n no"' for row in range(ROWS)], "\r\n"),
        ([["é", "漢字", "🚲"][row % 3] for row in range(ROWS)], "\n"),
    ],
)
def test_a_large_table_is_the_same_on_disk_wherever_blocks_end(
    tmp_path: Path, cells: list[str], end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, b"\xef\xbb\xbf\r\n" + csv_of({"": PLAIN["x"], "odd": cells, **PLAIN}, end))
    for block in (90, 301, csv_reader._BLOCK_BYTES):
        found = [outcome(on_disk(path, monkeypatch, block)), outcome(read_table(path))]
        assert found[0] == found[1]


@pytest.mark.parametrize("block", range(20, 44))
def test_a_line_end_within_a_cell_stays_whole_wherever_a_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    path = written(tmp_path, b'a,b\r\n1,"x\r\ny"\r\n2,"\rz\r\n"\r\n3,w\r\n')
    expected = {"a": ["1", "2", "3"], "b": ["x\r\ny", "z", "w"]}
    assert on_disk(path, monkeypatch, block).to_pydict() == expected


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


def test_a_small_parquet_file_of_many_alike_cells_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "alike.parquet"
    pyarrow.parquet.write_table(pa.table({"x": np.ones(200_000)}), path)
    assert path.stat().st_size < 2**16
    monkeypatch.setattr(formats, "LEAST_BYTES", 2**20)
    before = pa.total_allocated_bytes()
    table = read_table(path)
    assert pa.total_allocated_bytes() - before < 2**16
    assert table.num_rows == 200_000


def test_no_thread_holds_a_source_after_an_error() -> None:
    """A thread that is to let go of one while the interpreter ends aborts the process."""
    text = b"time,speed,y\n" + b"".join(b"%d,1.5,2\n" % row for row in range(60)) + b"(60 rows affected)\n"
    before = _sources()
    for _ in range(5):
        with pytest.raises(TableError, match="line 62: 1 cells"):
            parse_csv(text, "footer.csv")
        assert _sources() <= before


def _sources() -> set[int]:
    return {id(each) for each in gc.get_objects() if type(each) is csv_reader._Blocks}
