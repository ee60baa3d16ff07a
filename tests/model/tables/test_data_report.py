"""docs/tables.md prints what the report says of the file that it shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

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


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([*np.linspace(0, 5, 50), -999.0, -999.0], "-999 in 2 cells may stand for missing values"),
        ([*np.linspace(0, 90, 50), 9999.0, 9999.0], "9999 in 2 cells may stand for missing values"),
        ([*range(95, 145), 99, 99], ""),
        ([*np.linspace(-5, 5, 50), -1.0, -1.0], ""),
    ],
)
def test_codes_for_missing_values_are_suspected(cells: list[float], said: str) -> None:
    table = pa.table({"y": [row % 7 / 2 for row in range(52)], "c": [float(cell) for cell in cells]})
    odd = prepare_table(table, "y", make_options({})).report().columns[1].remarks
    assert (said in odd[0]) if said else not odd
