"""`murho predict`: columns, blocks, options, and a service behind it (a real one: tests/e2e/test_commands.py)."""

import csv
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from murho_client import Client

from murho.cli import output_files
from murho.cli.predict import predict, require_fitting
from murho.cli.service_scorer import ServiceScorer, connect
from murho.model.checkpoint.checkpoint import FACTS_FILE
from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import CheckpointError, OptionError, TableError
from murho.model.predictive.prediction import PredictOptions
from murho.model.python import table_scoring
from murho.model.python.table_scoring import score_blocks, stored_schema
from murho.model.tables import formats
from murho.model.tables.schema_inference import columns_from_table
from murho.model.tables.table_files import read_table
from tests.model.conftest import present
from tests.rents import CHECKPOINTS, RENTS, ROWS
from tests.support import call_murho


@pytest.fixture
def rents(tmp_path: Path) -> Path:
    path = tmp_path / "rents.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)
    return path


def test_raw_leaves_std_and_percentiles_uncalibrated(rents: Path) -> None:
    words = ("predict", rents, "--checkpoints", CHECKPOINTS)
    calibrated, raw = (next(csv.DictReader(call_murho(*words, *more).stdout.splitlines())) for more in ((), ("--raw",)))
    posterior = Posterior.load(RENTS)
    columns = columns_from_table(pa.Table.from_pylist(ROWS), posterior.schema)
    for told, options in ((calibrated, PredictOptions()), (raw, PredictOptions(calibrated=False))):
        expected = posterior.predict(columns, options)
        assert float(told["std"]) == pytest.approx(present(expected.std)[0], rel=1e-4)
        assert float(told["p95"]) == pytest.approx(present(expected.percentiles)[0][2], rel=1e-4)
    assert calibrated["mean"] == raw["mean"]
    assert calibrated["std"] != raw["std"]


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
    monkeypatch.setattr(table_scoring, "FIRST_ROWS", 2)
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
    monkeypatch.setattr(output_files, "ROWS_PER_GROUP", 1)
    with pytest.raises(TableError, match=f"row {rows + 1}: the cell is missing"):
        predict(rents, "rents", str(CHECKPOINTS), samples=8, output=tmp_path / "scored.parquet")
    assert list(tmp_path.iterdir()) == [rents]


def test_a_table_without_rows_is_refused_and_columns_that_are_no_features_are_named(rents: Path) -> None:
    lines, words = rents.read_text().splitlines(), ("--checkpoints", CHECKPOINTS, "--samples", 4)
    rents.write_text("\n".join([f"{lines[0]},nonsense", *(f"{line},1" for line in lines[1:])]))
    assert "note: not used, because no features of the model: 'nonsense'" in call_murho("predict", rents, *words).stderr
    rents.write_text(lines[0])
    assert "no rows" in call_murho("predict", rents, *words, code=1).stderr
    assert "must be local or ray, not 'spark'" in call_murho("predict", rents, "--engine", "spark", code=2).stderr


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


def test_a_schema_that_was_edited_is_the_fault_of_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / FACTS_FILE).write_text((RENTS / FACTS_FILE).read_text().replace('"city"', '"town"'))
    with pytest.raises(CheckpointError, match=r"model.json: .*damaged or edited"):
        stored_schema(tmp_path)


def test_an_option_of_the_other_kind_of_target_is_refused_before_the_table_is_read() -> None:
    with pytest.raises(OptionError, match="--coverage: 'rent' is a number: leave it out"):
        predict(RENTS / "no such file.csv", "rents", str(CHECKPOINTS), coverage=0.8)
    require_fitting(stored_schema(RENTS), {"--percentiles", "--thresholds", "--no-noise"})


DESCRIBED: dict[str, Any] = {
    "name": "rent",
    "version": "2",
    "versions": ["2"],
    "task": "regression",
    "target": {"name": "price", "unit": "EUR"},
    "features": [],
    "metrics": {},
}


def client_of(answer: Callable[[httpx2.Request], httpx2.Response]) -> Client:
    return Client("http://127.0.0.1:1", http_client=httpx2.Client(transport=httpx2.MockTransport(answer)), retries=0)


def test_without_the_client_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "murho_client", None)
    with pytest.raises(OptionError, match=r"pip install 'murho\[client\]', or in a clone: pip install \./client"):
        connect("http://127.0.0.1:1")


def test_the_only_model_of_a_service_needs_no_name() -> None:
    def serving(*names: str) -> Client:
        models = [DESCRIBED | {"name": name} for name in names]
        return client_of(
            lambda request: httpx2.Response(
                200, json={"models": models} if request.url.path == "/models" else DESCRIBED | {"name": "rent"}
            )
        )

    with serving("rent") as client:
        assert ServiceScorer(client, None, None, PredictOptions()).schema.target.name == "price"
    with serving("rent", "cars") as client, pytest.raises(OptionError, match=r"has 2 models .*--model NAME"):
        ServiceScorer(client, None, None, PredictOptions())
