"""docs/tables.md prints what the report says of the file that it shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from murho.model.tables.data_report import report_lines
from murho.model.tables.files import read_table
from murho.model.training.options import make_options
from murho.model.training.prepared_table import prepare_table
from tests.support import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_the_page_shows_the_report_of_its_file(tmp_path: Path) -> None:
    file, report = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "tables.md").read_text(), flags=re.DOTALL)[:2]
    (tmp_path / "used.csv").write_text(file)
    prepared = prepare_table(read_table(tmp_path / "used.csv"), "price", make_options({}))
    assert "\n".join(report_lines(prepared.report(), "used.csv")) + "\n" == report
