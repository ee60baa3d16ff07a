"""The command `murho predict` (as a process: tests/e2e/test_commands.py)."""

from __future__ import annotations

import csv
import json
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from murho.cli.predict import predict
from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import TableError
from murho.model.predictive.prediction import PredictOptions
from murho.model.python import table_scoring
from murho.model.python.table_scoring import score_blocks
from murho.model.tables import formats, writers
from murho.model.tables.files import read_table
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import present
from tests.rents import CHECKPOINTS, RENTS, ROWS
from tests.support import call_murho

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def rents(tmp_path: Path) -> Path:
    path = tmp_path / "rents.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)
    return path


@pytest.mark.parametrize("raw", [False, True])
def test_raw_leaves_std_and_percentiles_uncalibrated(raw: bool, rents: Path, tmp_path: Path) -> None:
    output = tmp_path / "scored.csv"
    predict(rents, "rents", str(CHECKPOINTS), raw=raw, output=output)
    with output.open(newline="") as file:
        first = next(csv.DictReader(file))
    posterior = Posterior.load(RENTS)
    columns = columns_from_table(pa.Table.from_pylist(ROWS), posterior.schema)
    calibrated, uncalibrated = (posterior.predict(columns, PredictOptions(calibrated=each)) for each in (True, False))
    assert float(first["mean"]) == pytest.approx(calibrated.mean[0], rel=1e-5)
    for answer, is_it in ((calibrated, not raw), (uncalibrated, raw)):
        assert (float(first["std"]) == pytest.approx(present(answer.std)[0], rel=1e-4)) == is_it
        assert (float(first["p95"]) == pytest.approx(present(answer.percentiles)[0][2], rel=1e-4)) == is_it


def test_the_only_checkpoint_needs_no_name(rents: Path, tmp_path: Path) -> None:
    root = tmp_path / "models"
    shutil.copytree(CHECKPOINTS / "rents", root / "rents")
    words = ("predict", rents, "--checkpoints", root, "--samples", 8)
    done = call_murho(*words)
    assert done.stdout == call_murho(*words, "--model", "rents").stdout
    assert f"note: --model rents, the only checkpoint in {root}" in done.stderr
    shutil.copytree(root / "rents", root / "cars")
    for several in (words, ("evaluate", rents, "--checkpoints", root)):
        said = call_murho(*several, code=2).stderr
        assert f"{root} has 2 checkpoints (cars, rents): choose one with --model NAME" in said
    assert "has no checkpoint: train one" in call_murho("predict", rents, "--checkpoints", tmp_path, code=2).stderr


def test_thresholds_draws_and_warnings_are_columns_of_csv_and_parquet(rents: Path, tmp_path: Path) -> None:
    base = ("predict", rents, "--model", "rents", "--checkpoints", CHECKPOINTS, "--samples", 4)
    words = (*base, "--thresholds", "500,7.5", "--draws", "--warnings", "--no-noise", "--percentiles", "50")
    rows = list(csv.DictReader(call_murho(*words).stdout.splitlines()))
    moments = ["mean", "std", "epistemic_std", "aleatoric_std", "p50"]
    assert list(rows[0]) == [*moments, "exceedance_500", "exceedance_7.5", "draws", "warnings"]
    call_murho(*words, "--output", tmp_path / "scored.parquet")
    table = pq.read_table(tmp_path / "scored.parquet")
    assert table.column_names == list(rows[0])
    assert [json.loads(row["draws"]) for row in rows] == table.column("draws").to_pylist()
    assert [row["warnings"] or None for row in rows] == table.column("warnings").to_pylist()
    assert {len(draws) for draws in table.column("draws").to_pylist()} == {4}


def test_a_large_file_is_answered_chunk_by_chunk_as_a_small_one(
    rents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scored(name: str) -> list[dict[str, object]]:
        output = tmp_path / name
        predict(rents, "rents", str(CHECKPOINTS), samples=8, output=output, keep_inputs=True)
        rows: list[dict[str, object]] = read_table(output).to_pylist()
        return rows

    whole = scored("whole.csv")
    monkeypatch.setattr(score_blocks, "__defaults__", (2,))
    monkeypatch.setattr(formats, "LEAST_BYTES", 0)
    parts = scored("parts.csv")
    assert [list(row) for row in parts] == [list(row) for row in whole]
    for row, expected in zip(parts, whole, strict=True):
        assert row["sqm"] == expected["sqm"]
        assert float(str(row["p95"])) == pytest.approx(float(str(expected["p95"])), rel=1e-5)
    assert len(scored("parts.parquet")) == len(whole) > 2
    rents.write_text(rents.read_text() + "," * rents.read_text().split("\n")[0].count(",") + "\n")
    with pytest.raises(TableError, match=f"rents.csv: column .*, row {len(whole) + 1}: the cell is missing"):
        scored("none.csv")
    assert not (tmp_path / "none.csv").exists()


def test_an_error_in_a_late_row_leaves_no_parquet_file_and_rows_before_it_on_stdout(
    rents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    predict(rents, "rents", str(CHECKPOINTS), samples=8)
    whole = capsys.readouterr().out.splitlines()
    rows = len(whole) - 1
    monkeypatch.setattr(score_blocks, "__defaults__", (rows,))
    monkeypatch.setattr(table_scoring, "FIRST_ROWS", rows)
    rents.write_text(rents.read_text() + "," * rents.read_text().split("\n")[0].count(",") + "\n")
    with pytest.raises(TableError, match=f"row {rows + 1}: the cell is missing"):
        predict(rents, "rents", str(CHECKPOINTS), samples=8)
    assert capsys.readouterr().out.splitlines() == whole
    monkeypatch.setattr(writers, "ROWS_PER_GROUP", 1)
    with pytest.raises(TableError, match=f"row {rows + 1}: the cell is missing"):
        predict(rents, "rents", str(CHECKPOINTS), samples=8, output=tmp_path / "scored.parquet")
    assert list(tmp_path.iterdir()) == [rents]


def test_columns_that_are_no_features_are_named(rents: Path) -> None:
    lines = rents.read_text().splitlines()
    rents.write_text("\n".join([f"{lines[0]},nonsense", *(f"{line},1" for line in lines[1:])]))
    said = call_murho("predict", rents, "--model", "rents", "--checkpoints", CHECKPOINTS, "--samples", 4).stderr
    assert "note: not used, because no features of the model: 'nonsense'" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--thresholds", "much"), "--thresholds: expected numbers parted by commas, such as 20,30, not 'much'"),
        (("--thresholds", "inf"), "--thresholds: expected numbers strictly between -inf and inf, not inf"),
        (("--thresholds", "3,3"), "--thresholds: each number once, not (3.0, 3.0)"),
        (("--percentiles", "5,5"), "--percentiles: each number once, not (5.0, 5.0)"),
    ],
)
def test_options_that_make_no_sense_are_refused(rents: Path, options: tuple[str, ...], said: str) -> None:
    done = call_murho("predict", rents, "--model", "rents", "--checkpoints", CHECKPOINTS, *options, code=2)
    assert said in done.stderr


def test_an_unknown_engine_is_named(tmp_path: Path) -> None:
    said = call_murho("predict", tmp_path / "x.csv", "--engine", "spark", code=2).stderr
    assert said == "error: --engine must be local or ray, not 'spark'\n"
