"""Data frames of Modin are read as those of pandas. constraints.txt has a newer pandas than Modin takes."""

from typing import Any

import pandas as pd
import pytest
from murho_client._data import to_batch

from murho.model.tables.table_files import is_frame, table_from_frame

DAYS = pd.to_datetime(["2024-01-01", None, "2024-01-03"])
COLUMNS = {
    "number": [1.5, None, 3.0],
    "whole": pd.array([1, None, 3], dtype="Int64"),
    "category": pd.Categorical(["x", "y", None]),
    "day": DAYS,
    "moment": DAYS.tz_localize("Europe/Zurich"),
    "text": ["u", None, "v"],
    "truth": [True, False, True],
}


@pytest.mark.filterwarnings("ignore")
def test_modin_is_read_as_pandas_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODIN_ENGINE", "python")
    modin: Any = pytest.importorskip("modin.pandas")
    frame, known = modin.DataFrame(COLUMNS), pd.DataFrame(COLUMNS)
    assert is_frame(frame)
    assert table_from_frame(frame, [*COLUMNS]).equals(table_from_frame(known, [*COLUMNS]))
    assert to_batch(frame).inputs() == to_batch(known).inputs()
