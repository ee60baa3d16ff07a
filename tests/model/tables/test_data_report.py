"""docs/tables.md prints what the report says of the file that it shows."""

import re
from pathlib import Path

from murho.model.tables.data_report import report_lines
from murho.model.tables.table_files import read_table
from murho.model.training.options import make_options
from murho.model.training.prepared_table import prepare_table
from tests.support import ROOT


def test_the_page_shows_the_report_of_its_file(tmp_path: Path) -> None:
    file, report = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "tables.md").read_text(), flags=re.DOTALL)[:2]
    (tmp_path / "used.csv").write_text(file)
    prepared = prepare_table(read_table(tmp_path / "used.csv"), "price", make_options({}))
    assert "\n".join(report_lines(prepared.report(), "used.csv")) + "\n" == report


def test_slips_and_codes_are_named_and_hide_no_leak(tmp_path: Path) -> None:
    cells = [f"{row % 17 / 2},{row * 7 % 30},{row % 17 if row != 5 else 1e9}" for row in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *cells, *["-200,1,3"] * 9]))
    report = prepare_table(read_table(tmp_path / "t.csv"), "y", make_options({})).report()
    remarks = {column.name: column.remarks for column in report.columns}
    assert remarks["y"] == [
        "row 6: 1e+09 is far out, all others lie from 0 to 16; if it is a mistake, correct the cell or leave it empty"
    ]
    assert remarks["a"] == [
        "-200, 9 cells, may stand for a missing value: all others lie from 0 to 8; if it does, give "
        "--missing-value a=-200, or -200 for all columns"
    ]
    assert [suspect.column for suspect in report.leak_suspects] == ["a"]
