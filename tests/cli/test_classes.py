"""The commands on a classifier: what they print and write, and which options they refuse."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from murho_client import Prediction

from murho.cli.evaluation_report import report_lines
from murho.cli.predict import require_fitting
from murho.cli.service_scorer import ServiceScorer
from murho.model.errors import OptionError
from murho.model.evaluation.judging import evaluate_table
from murho.model.predictive.prediction import PredictOptions
from murho.model.python.table_scoring import LocalScorer, lists_as_text, score_blocks
from murho.model.tables.schema import Schema, Target
from tests.model.rooms import CLASSES, rooms_table
from tests.support import call_murho, write_table

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.checkpoint.posterior import Posterior

COLUMNS = ["prediction", *(f"p_{name}" for name in CLASSES), "entropy", "epistemic_entropy", "prediction_set"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rooms.csv"
    table = rooms_table(rows=60, seed=4)
    write_table(path, {name: table.column(name) for name in table.column_names})
    return path


def predicted(data: Path, root: Path, *options: object) -> list[dict[str, str]]:
    output = call_murho("predict", data, "--model", "rooms", "--checkpoints", root, *options).stdout
    return list(csv.DictReader(io.StringIO(output)))


def test_csv_has_the_contracts_columns_whatever_is_in_the_names_of_classes(data: Path, room_checkpoints: Path) -> None:
    rows = predicted(data, room_checkpoints)
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


def test_parquet_has_lists(data: Path, room_checkpoints: Path, tmp_path: Path) -> None:
    rows = predicted(data, room_checkpoints)
    output = tmp_path / "scored.parquet"
    predicted(data, room_checkpoints, "--output", output, "--keep-inputs")
    table = pq.read_table(output)
    assert table.column_names[-len(COLUMNS) :] == COLUMNS
    assert table.column("room").to_pylist()[0] in CLASSES
    assert table.column("prediction_set").to_pylist() == [json.loads(row["prediction_set"]) for row in rows]


def test_sets_of_a_higher_coverage_contain_those_of_a_lower_one(data: Path, room_checkpoints: Path) -> None:
    small, large = (predicted(data, room_checkpoints, "--coverage", coverage) for coverage in (0.5, 0.99))
    sizes = []
    for before, after in zip(small, large, strict=True):
        first, second = (set(json.loads(row["prediction_set"])) for row in (before, after))
        assert first <= second
        sizes.append(len(second) - len(first))
    assert sum(sizes) > 20


def test_without_draws_there_are_probabilities_alone(data: Path, room_checkpoints: Path) -> None:
    for row in predicted(data, room_checkpoints, "--samples", 0):
        assert sum(float(row[f"p_{name}"]) for name in CLASSES) == pytest.approx(1.0)
        assert [row[name] for name in ("entropy", "epistemic_entropy", "prediction_set")] == ["", "", ""]


def test_draws_and_warnings_come_after_the_contracts_columns(data: Path, room_checkpoints: Path) -> None:
    for options, more in ((("--draws", "--warnings"), ["draws", "warnings"]), (("--mc-error",), None)):
        rows = predicted(data, room_checkpoints, "--samples", 8, *options)
        assert list(rows[0])[: len(COLUMNS)] == COLUMNS
        if more is None:
            assert f"mc_error_{CLASSES[0]}" in rows[0]
        else:
            assert list(rows[0])[len(COLUMNS) :] == more
            assert np.shape(json.loads(rows[0]["draws"])) == (8, len(CLASSES))


def test_raw_probabilities_are_others(data: Path, room_checkpoints: Path) -> None:
    served, raw = predicted(data, room_checkpoints), predicted(data, room_checkpoints, "--raw")
    assert any(first["entropy"] != second["entropy"] for first, second in zip(served, raw, strict=True))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--percentiles", "5,95"), "--percentiles: 'room' is one of 3 classes: leave it out. --coverage"),
        (
            ("--thresholds", "5"),
            "--thresholds: 'room' is one of 3 classes: leave it out. p_",
        ),
        (("--no-noise",), "--no-noise: 'room' is one of 3 classes"),
        (("--coverage", "90"), "--coverage: expected numbers strictly between 0 and 1, not 90"),
        (("--coverage", "1"), "--coverage: expected numbers strictly between 0 and 1, not 1"),
        (("--coverage", "-0.2"), "--coverage: expected numbers strictly between 0 and 1, not -0.2"),
    ],
)
def test_options_that_make_no_sense_for_classes_are_refused(
    data: Path, room_checkpoints: Path, options: tuple[str, ...], said: str
) -> None:
    done = call_murho("predict", data, "--model", "rooms", "--checkpoints", room_checkpoints, *options, code=2)
    assert said in " ".join(done.stderr.split())


def test_coverage_is_refused_for_a_number() -> None:
    numeric = Schema((), Target("rent", "EUR"), {})
    with pytest.raises(OptionError, match=r"'rent' is a number: leave it out\. --percentiles 5,95"):
        require_fitting(numeric, {"--percentiles", "--coverage"})
    require_fitting(numeric, {"--percentiles"})


def test_evaluate_prints_a_report_and_its_json(data: Path, room_checkpoints: Path) -> None:
    words = ("evaluate", data, "--model", "rooms", "--checkpoints", room_checkpoints)
    text = call_murho(*words).stdout
    assert text.startswith("rooms version 1 on 60 rows\nlog loss ")
    for part in ("prediction sets", "the surest rows", "by district", "by lift", "class / predicted class", *CLASSES):
        assert part in text
    report = json.loads(call_murho(*words, "--json").stdout)
    assert {"n", "accuracy", "log_loss", "brier", "auc", "ece", "raw", "calibrated", "sets"} <= set(report)


def test_the_report_says_what_is_odd(rooms: Posterior) -> None:
    report = evaluate_table(rooms, rooms_table(rows=30, seed=3))
    unknown = {"rows": 2, "classes": {"attic": 2}, "accuracy": 0.8}
    lines = report_lines(report | {"unknown": unknown, "calibrated": None}, None)
    assert any("2 rows more are of classes that the model does not know ('attic' 2)" in line for line in lines)
    assert not any("calibrated" in line for line in lines)
    many = {f"class {number}": report["by_class"][CLASSES[0]] for number in range(30)}
    lines = report_lines(report | {"by_class": many, "confusion": None}, None)
    assert any(line.startswith("most frequent confusions") for line in lines)
    assert "and 18 more, see --json" in lines


def test_models_lists_a_classifier(room_checkpoints: Path) -> None:
    (line,) = call_murho("models", "--checkpoints", room_checkpoints).stdout.splitlines()[1:]
    assert "classification" in line
    assert "log loss" in line
    (facts,) = json.loads(call_murho("models", "--checkpoints", room_checkpoints, "--json").stdout)["models"]
    assert facts["task"] == "classification"
    assert 0.0 < facts["log_loss"] < 1.2
    assert facts["accuracy"] > 0.5
    assert facts["crps"] is None


def test_blocks_change_nothing(rooms: Posterior) -> None:
    table = rooms_table(rows=50, seed=8)
    scorer = LocalScorer(rooms, PredictOptions(samples=16))
    whole = scorer.score(table).answers
    parts = pa.concat_tables([part.answers for part in score_blocks(table, partial(map, scorer.score), 7)])
    assert whole.column_names == parts.column_names == COLUMNS
    assert whole["prediction_set"].to_pylist() == parts["prediction_set"].to_pylist()
    np.testing.assert_allclose(parts["entropy"].to_numpy(), whole["entropy"].to_numpy(), rtol=1e-5)


def test_an_answer_of_the_service_has_the_same_columns() -> None:
    described = {
        "target": {"name": "room", "classes": ["a", "b"]},
        "features": [
            {"name": "size", "kind": "numeric", "unit": None, "min": 0, "max": 9, "categories": None, "missing": True}
        ],
    }
    answer = {
        "model": {"name": "rooms", "version": "1"},
        "target": "room",
        "samples": 8,
        "seed": 1,
        "calibrated": True,
        "classes": ["a", "b"],
        "prediction": ["a", "b"],
        "probabilities": [[0.9, 0.1], [0.3, 0.7]],
        "epistemic_std": [[0.1, 0.1], [0.2, 0.2]],
        "entropy": [0.3, 0.6],
        "epistemic_entropy": [0.1, 0.1],
        "percentiles": None,
        "prediction_set": {"coverage": 0.9, "values": [["a"], ["a", "b"]]},
        "mc_error": {"probabilities": [[0.01, 0.02], [0.03, 0.04]]},
        "warnings": [],
    }

    class Service:
        """A client of a service that answers so."""

        def model(self, *_: object) -> Any:
            return SimpleNamespace(raw=described)

        def predict(self, *_: object, **asked: object) -> Prediction:
            assert "percentiles" not in asked
            return Prediction.of([answer])

    options = PredictOptions(8, mc_error=True)
    scorer = ServiceScorer(Service(), "rooms", None, options)  # type: ignore[arg-type]
    columns = scorer.score(pa.table({"size": [1.0, 2.0]})).answers
    errors = [f"{name}_{label}" for name in ("epistemic_std", "mc_error") for label in "ab"]
    names = ["prediction", "p_a", "p_b", "entropy", "epistemic_entropy", "prediction_set"]
    assert columns.column_names == [*names, *errors]
    assert columns["p_b"].to_pylist() == [0.1, 0.7]
    assert columns["mc_error_b"].to_pylist() == [0.02, 0.04]
    assert lists_as_text(columns)["prediction_set"].to_pylist() == ['["a"]', '["a", "b"]']
    assert lists_as_text(columns)["prediction"].to_pylist() == ["a", "b"]
