"""Tables as people have them, through `murho inspect`: each is a small copy of a file that was read wrongly once."""

import json
from datetime import datetime
from pathlib import Path

import openpyxl
import pytest

from tests.support import call_murho

ROWS = 60


def inspected(directory: Path, text: str | bytes, *options: object, name: str = "table.csv", code: int = 0) -> str:
    """Return what `murho inspect` prints, or its error."""
    path = directory / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    done = call_murho("inspect", path, *options, code=code)
    return done.stdout if code == 0 else done.stderr


def table(head: str, *cells: list[str], separator: str = ",") -> str:
    """Return a text with a head, and rows of these cells, which are repeated, and a number."""
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

    def test_commas_within_texts_make_no_title_of_the_header(self, tmp_path: Path) -> None:
        said = inspected(
            tmp_path,
            table("gas;geo;y\n", ["all (CO2, CH4, N2O, HFC)", "one (CO2, N2O, HFC, PFC)"], ["AT", "BE"], separator=";"),
        )
        assert said.startswith("table.csv: 60 rows, 3 columns\n  column")

    def test_titles_of_a_sheet_are_left_out_and_lines_skipped(self, tmp_path: Path) -> None:
        book = openpyxl.Workbook()
        for row in [["Report of sales"], [], ["region", "units"], *([each % 7, each % 5] for each in range(ROWS))]:
            book.active.append(row)
        book.save(tmp_path / "book.xlsx")
        said = call_murho("inspect", tmp_path / "book.xlsx").stdout
        assert "book.xlsx: 60 rows, 2 columns\n  note: the table begins at line 3\n" in said
        assert "note" not in call_murho("inspect", tmp_path / "book.xlsx", "--skip-lines", 2).stdout

    def test_short_lines_are_filled_up_and_said(self, tmp_path: Path) -> None:
        assert "60 lines with fewer cells" in inspected(tmp_path, table("a,b,y,z\n", ["1", "2"], ["3", "1"]))
        said = inspected(tmp_path, table("a,b,y\n", ["1", "2"], ["3", "1"]) + "(60 rows affected)\n")
        assert "1 line with fewer cells than the header (first line 62): the last cells are missing" in said
        assert "read as missing among numbers: '(60 rows affected)'" in said
        assert "61 rows" in said

    def test_units_may_stand_beside_a_name_of_texts(self, tmp_path: Path) -> None:
        head = "region;t;v;y\nwijken en buurten;x 1 000 euro;%;aantal\n"
        said = inspected(tmp_path, table(head, ["A", "B", "C"], ["1,5", "."], ["3", "4"], separator=";"))
        assert "read as their units: 't' 'x 1 000 euro', 'v' '%'" in said
        more = table("a;b;c;y\nx;y;%;%\n", ["A", "B", "C"], ["D", "E"], ["3", "4"], separator=";")
        assert "units" not in inspected(tmp_path, more)

    def test_latin_letters_may_be_others(self, tmp_path: Path) -> None:
        text = table("zażółć,y\n", ["Łódź", "Kraków"]).encode("cp1250")
        assert "if letters look wrong, give --file-encoding, such as cp1250" in inspected(tmp_path, text)
        assert "Łódź" in inspected(tmp_path, text, "--file-encoding", "cp1250")

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
        assert "note: no UTF-8 in 1 byte (first line 62): read as '\ufffd', or give --file-encoding" in said
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


class TestDates:
    def test_the_order_with_the_fewest_dates_in_the_future_is_read_and_the_other_said(self, tmp_path: Path) -> None:
        days = [f"{8 + row // 4:02}/{row % 4 * 3 + 1:02}/{row % 28 + 1:02}" for row in range(48)]
        text = table("updated,y\n", days)
        said = inspected(tmp_path, text)
        assert "date     0        2008-01-01 to 2019-10-20  08/01/01\n      read as dates, year-first\n" in said
        assert (
            "'08/01/01' is read as 2008-01-01, which leaves the fewest dates in the future; --date-order day-first"
            in said
        )
        assert "reads 2001-01-08\n" in said
        said = inspected(tmp_path, text, "--date-order", "day-first")
        assert "read as dates, day-first\n" in said

    def test_years_of_two_digits_have_a_pivot(self, tmp_path: Path) -> None:
        text = table("born,y\n", ["14/03/40", "19/12/41", "26/11/88"])
        said = inspected(tmp_path, text)
        assert (
            "'14/03/40' is read as 2040-03-14, in the future (as 1 more): if it is of the 1900s, give --pivot-year"
            in said
        )
        said = inspected(tmp_path, text, "--pivot-year", 27)
        assert "1940-03-14 to 1988-11-26" in said
        assert "future" not in said

    def test_times_without_a_zone_beside_others_are_said(self, tmp_path: Path) -> None:
        said = inspected(tmp_path, table("t,y\n", ["2020-03-01T10:00:00", "2020-03-02T10:00:00+02:00"]))
        assert "'2020-03-01T10:00:00' has no time zone, unlike '2020-03-02T10:00:00+02:00': UTC is assumed" in said
        assert "2020-03-01T10:00:00Z to 2020-03-02T08:00:00Z" in said
        assert "zone" not in inspected(tmp_path, table("t,y\n", ["2020-03-01T10:00:00", "2020-03-02T10:00:00"]))


class TestCells:
    def test_codes_with_leading_zeros_are_categories(self, tmp_path: Path) -> None:
        said = inspected(
            tmp_path,
            table("code,hour,many,y\n", ["7", "007", "07"], ["00", "09", "23"], [f"{row:03}" for row in range(ROWS)]),
        )
        assert "code    categorical  0        3: 7, 007, 07" in said
        assert "      codes with leading zeros are categories: if they are numbers, declare kind" in said
        assert "hour    numeric" in said
        assert (
            "left out 'many': it identifies rows: its 60 texts are all different; codes with leading zeros are" in said
        )

    def test_a_sign_among_numbers_is_missing_however_often(self, tmp_path: Path) -> None:
        said = inspected(tmp_path, table("a,y\n", [f"{row}.5" if row % 2 else "*" for row in range(ROWS)]))
        assert "read as missing among numbers: '*' (30); if it is meant, declare kind = \"categorical\"" in said
        assert "--ignore a" in said


def test_names_that_look_alike_are_one_name_however_they_are_typed(tmp_path: Path) -> None:
    text = table("gro\u0308sse,gr\u00f6sse,y\n", ["1", "2"], ["3", "4"])
    said = inspected(tmp_path, text, "--target", "y", "--ignore", "gro\u0308sse")
    assert "names that were there before get a number: 'gr\u00f6sse_2'" in said
    assert "left out 'gr\u00f6sse': ignored" in said


def test_what_controls_a_terminal_is_escaped_and_small_things_are_written_well(tmp_path: Path) -> None:
    said = inspected(tmp_path, table("a\x1b[31mRED,b,y\n", ["q", "\x1b]0;hip", "\u202egpj"], ["-0.0", "0.5"]))
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert "  a\\u001b[31mRED  categorical" in said
    assert "0 to 0.5 " in said
    assert "-0 " not in said
    assert "table.csv: 1 row, 2 columns" in inspected(tmp_path, "a,y\n1,2\n")


def test_kinds_and_options_of_a_toml_file_are_read(tmp_path: Path) -> None:
    config = tmp_path / "fit.toml"
    config.write_text('target = "y"\nignore = ["b"]\n\n[columns.a]\nkind = "categorical"\nunit = "kg"\n')
    text = table("a,b,y\n", ["1", "2"], ["3", "4"])
    said = inspected(tmp_path, text, "--config", config)
    assert "a       categorical" in said
    assert "numeric (target)" in said
    assert "left out 'b': ignored" in said
    assert "the target 'a' has 2 classes" in inspected(tmp_path, text, "--config", config, "--target", "a")
    config.write_text('[columns.a]\nkind = "categorical"\n')
    assert "a       categorical" in inspected(tmp_path, text, "--config", config)


def test_days_that_stand_for_none_are_dates_and_said(tmp_path: Path) -> None:
    days = [f"2020-01-{row % 28 + 1:02}" for row in range(ROWS - 5)] + ["9999-12-31"] * 5
    said = inspected(tmp_path, table("until,y\n", days))
    assert "2020-01-01 to 9999-12-31" in said
    assert "9999-12-31, 5 cells, may stand for a missing value: all others lie from 2020-01-01 to 2020-01-28" in said
    book = openpyxl.Workbook()
    for row in [["until", "y"], *([datetime.fromisoformat(day), place % 7] for place, day in enumerate(days))]:
        book.active.append(row)
    book.save(tmp_path / "book.xlsx")
    said = call_murho("inspect", tmp_path / "book.xlsx", "--missing-value", "until=9999-12-31").stdout
    assert "until   date     5        2020-01-01 to 2020-01-28" in said
