"""Tables as people have them, through `murho inspect`: each is a small copy of a file that was read wrongly once."""

from __future__ import annotations

import json
from pathlib import Path

import openpyxl
import pytest

from tests.support import call_murho

ROWS = 60


def inspected(directory: Path, text: str | bytes, *options: object, name: str = "table.csv", code: int = 0) -> str:
    """What `murho inspect` prints, or its error."""
    path = directory / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    done = call_murho("inspect", path, *options, code=code)
    return done.stdout if code == 0 else done.stderr


def table(head: str, *cells: list[str], separator: str = ",") -> str:
    """A text with a head, and rows of these cells, which are repeated, and a number."""
    rows = ([*(column[row % len(column)] for column in cells), f"{row * 37 % 101 / 10}"] for row in range(ROWS))
    return head + "".join(separator.join(row) + "\n" for row in rows)


class TestLines:
    @pytest.mark.parametrize(
        ("text", "line"),
        [
            (table("Report of sales 2020,,\n,,\nregion,units,y\n", ["N", "S"], ["1", "2", "4"]), 3),
            (table("Report of sales, 2020\n\nregion;units;y\n", ["N", "S"], ["1", "2", "4"], separator=";"), 3),
            (table("sep=;\nregion;units;y\n", ["N", "S"], ["1", "2", "4"], separator=";"), 2),
            (table("sep=|\nregion|units|y\n", ["N", "S"], ["1", "2", "4"], separator="|"), 2),
        ],
    )
    def test_titles_are_left_out_and_said(self, tmp_path: Path, text: str, line: int) -> None:
        said = inspected(tmp_path, text)
        assert f"note: the table begins at line {line}\n" in said
        assert said.startswith("table.csv: 60 rows, 3 columns")
        assert "region  categorical" in said
        assert "units   numeric" in said
        mark = next(each for each in ",;|" if each in text[-8:])
        longer = inspected(tmp_path, f"{text}1{mark}2{mark}3{mark}4\n", code=1)
        assert f"line {ROWS + line + 1}: 4 cells" in longer

    def test_titles_of_a_sheet_are_left_out_and_lines_skipped(self, tmp_path: Path) -> None:
        book = openpyxl.Workbook()
        for row in [["Report of sales"], [], ["region", "units"], *([each % 7, each % 5] for each in range(ROWS))]:
            book.active.append(row)
        book.save(tmp_path / "book.xlsx")
        said = call_murho("inspect", tmp_path / "book.xlsx").stdout
        assert "book.xlsx: 60 rows, 2 columns\n  note: the table begins at line 3\n" in said
        assert "note" not in call_murho("inspect", tmp_path / "book.xlsx", "--skip-lines", 2).stdout

    def test_short_lines_are_filled_up_and_said(self, tmp_path: Path) -> None:
        assert "60 lines have fewer cells" in inspected(tmp_path, table("a,b,y,z\n", ["1", "2"], ["3", "1"]))
        said = inspected(tmp_path, table("a,b,y\n", ["1", "2"], ["3", "1"]) + "(60 rows affected)\n")
        assert "1 line has fewer cells than the header (first line 62): the last cells count as missing" in said
        assert "read as missing among numbers: '(60 rows affected)'" in said
        assert "61 rows" in said

    def test_a_first_row_of_units_gives_units(self, tmp_path: Path) -> None:
        said = inspected(tmp_path, table("t,v,y\ns,m/s,K\n", ["1", "2"], ["0.5", "1.5"]), "--target", "y")
        assert "note: the first row holds texts above numbers, and is read as their units: 't' 's', 'v' 'm/s'" in said
        assert "0.5 to 1.5 m/s" in said
        assert "numeric (target)  0        0 to 10 K" in said
        assert "missing among numbers: 'n.k.'" in inspected(tmp_path, table("t,v,y\nn.k.,1,2\n", ["1"], ["0.5"]))

    def test_a_row_instead_of_names_is_noticed(self, tmp_path: Path) -> None:
        text = table("5.1,setosa,3.5\n", ["4.9", "6.3"], ["setosa", "other"])
        said = inspected(tmp_path, text)
        assert "note: the names look like cells of their columns ('5.1', 'setosa', '3.5'): if they are a row" in said
        said = inspected(tmp_path, text, "--no-header")
        assert "61 rows" in said
        assert "x0      numeric" in said
        assert "note" not in inspected(tmp_path, table("country,2010,2011,2013\n", ["A", "B"], ["1", "2"], ["3"]))


class TestBytes:
    def test_a_byte_0_is_named_with_its_line(self, tmp_path: Path) -> None:
        said = inspected(tmp_path, table("a,y\n", ["1"]).replace("1,", "1\0,", 1), code=1)
        assert "table.csv, line 2: it has a byte 0, as no text has: remove it, or give --file-encoding utf-16" in said

    @pytest.mark.parametrize(("name", "text"), [("t.csv", table("a,b,y\n", ["café", "thé"], ["1", "2"]))])
    def test_damaged_bytes_among_utf8_are_replaced_and_said(self, tmp_path: Path, name: str, text: str) -> None:
        said = inspected(tmp_path, text.encode() + b"caf\xc3,1,2\n", name=name)
        assert "note: 1 byte is not UTF-8, first in line 62: read as '\ufffd'; --file-encoding names another" in said
        assert "61 rows" in said


@pytest.mark.parametrize(
    ("written", "note"),
    [
        ({"a": {"0": 1, "1": 2}, "y": {"0": 3, "1": None}}, "read as the columns of a data frame"),
        ({"columns": ["a", "y"], "index": [0, 1], "data": [[1, 3], [2, None]]}, "read as columns"),
        ({"a": [1, 2], "y": [3, None]}, "read as columns"),
        ({"status": "ok", "items": [{"a": 1, "y": 3}, {"a": 2}]}, "the rows are the list 'items'"),
    ],
)
def test_json_as_libraries_write_it_is_read(tmp_path: Path, written: object, note: str) -> None:
    said = inspected(tmp_path, json.dumps(written), name="t.json")
    assert note in said
    assert "2 rows, 2 columns" in said
    assert "y       numeric  1 " in said or "left out 'y'" in said


def test_nested_cells_are_said_briefly(tmp_path: Path) -> None:
    said = inspected(tmp_path, json.dumps([{"a": {f"key {each}": each for each in range(999)}, "y": 1}]), name="t.json")
    assert len(said) < 600
