"""What a training says of rows that are dated or repeat an id, where rows held out at random would say too much."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from murho.model.training.context import split_table
from murho.model.training.options import make_options
from murho.model.training.prepared_table import prepare_table
from tests.model.conftest import Notes

ROWS = 400
DAYS = np.datetime64("2020-01-01", "D") + np.arange(ROWS)


def sentences_about(table: dict[str, Any], **options: Any) -> list[str]:
    notes = Notes()
    split_table(prepare_table(pa.table(table), "y", make_options(options)), notes)
    return [line for line in notes.lines if "a quick check errs" in line]


@pytest.mark.parametrize("seed", range(2))
def test_rows_that_tell_of_the_next_ones_in_time_are_said_and_others_are_not(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(size=(3, ROWS))
    walk = {"day": DAYS, "x": noise[0], "y": noise[1].cumsum()}
    (line,) = sentences_about(walk)
    assert line.startswith("rows are dated by 'day': a quick check errs ")
    assert line.endswith("if you ask for later rows, give --time day")
    assert not sentences_about(walk, time="day")
    assert not sentences_about({**walk, "y": noise[0] + noise[2]})
    assert not sentences_about({**walk, "y": 0.01 * np.arange(ROWS) + noise[2]})  # a line goes on


def test_rows_of_one_patient_are_said_to_tell_of_each_other() -> None:
    random = np.random.default_rng(0)
    patient = random.integers(0, 40, ROWS)
    x, noise, own = random.normal(size=ROWS), random.normal(size=ROWS), random.normal(size=(2, 40))
    table = {"patient_id": patient, "age": own[0][patient], "x": x, "y": x + own[1][patient] + 0.4 * noise}
    (line,) = sentences_about(table)
    assert line.startswith("'patient_id' repeats: a quick check errs ")
    assert line.endswith("give --group patient_id")
    assert not sentences_about(table, group=["patient_id"])
    assert not sentences_about({**table, "y": x + noise})
    assert not sentences_about({"visit_id": [[1]] * ROWS, "x": x, "y": x + noise})
    kinds = np.where(table["y"] > 0.0, "high", "low")
    assert "patient_id" in sentences_about({**table, "y": kinds})[0]
