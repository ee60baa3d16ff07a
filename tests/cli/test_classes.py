"""The commands on a classifier: what they print and write, and which options they refuse."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.model.rooms import CLASSES
from tests.support import call_murho

COLUMNS = ["prediction", *(f"p_{name}" for name in CLASSES), "entropy", "epistemic_entropy", "prediction_set"]


def predicted(rooms_file: Path, root: Path, *options: object) -> list[dict[str, str]]:
    output = call_murho("predict", rooms_file, "--model", "rooms", "--checkpoints", root, *options).stdout
    return list(csv.DictReader(io.StringIO(output)))


def test_csv_has_the_contracts_columns_whatever_is_in_the_names_of_classes(
    rooms_file: Path, room_checkpoints: Path
) -> None:
    rows = predicted(rooms_file, room_checkpoints)
    assert len(rows) == 60
    for row in rows:
        assert list(row) == COLUMNS
        probabilities = [float(row[f"p_{name}"]) for name in CLASSES]
        assert sum(probabilities) == pytest.approx(1.0)
        assert row["prediction"] == CLASSES[int(np.argmax(probabilities))]
        held = json.loads(row["prediction_set"])
        assert row["prediction"] in held
        assert set(held) <= set(CLASSES)
        assert 0.0 <= float(row["epistemic_entropy"]) <= float(row["entropy"])
    assert len({row["prediction"] for row in rows}) == 3


def test_parquet_has_lists(rooms_file: Path, room_checkpoints: Path, tmp_path: Path) -> None:
    rows = predicted(rooms_file, room_checkpoints)
    output = tmp_path / "scored.parquet"
    predicted(rooms_file, room_checkpoints, "--output", output, "--keep-inputs")
    table = pq.read_table(output)
    assert table.column_names[-len(COLUMNS) :] == COLUMNS
    assert table.column("room").to_pylist()[0] in CLASSES
    assert table.column("prediction_set").to_pylist() == [json.loads(row["prediction_set"]) for row in rows]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--percentiles", "5,95"), "--percentiles: 'room' is one of 3 classes: leave it out. --coverage"),
        (("--coverage", "90"), "--coverage: expected numbers strictly between 0 and 1, not 90"),
    ],
)
def test_options_that_make_no_sense_for_classes_are_refused(
    rooms_file: Path, room_checkpoints: Path, options: tuple[str, ...], said: str
) -> None:
    done = call_murho("predict", rooms_file, "--model", "rooms", "--checkpoints", room_checkpoints, *options, code=2)
    assert said in " ".join(done.stderr.split())
