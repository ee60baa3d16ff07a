"""The commands on a classifier: what they print and write, and which options they refuse."""

from __future__ import annotations

import csv
import io
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from murho.cli.batch_prediction import LocalScorer, ServiceScorer, class_prediction_of, lists_as_text, score_table
from murho.cli.evaluation_report import report_lines
from murho.cli.predict import require_options
from murho.model.errors import OptionError
from murho.model.evaluation.evaluate import evaluate_table
from murho.model.predictive.answer_columns import answer_columns
from murho.model.predictive.prediction import PredictOptions
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
        (("--percentiles", "5,95"), "--percentiles is for a target that is a number; 'room' has 3 classes: leave it"),
        (
            ("--thresholds", "5"),
            "--thresholds is for a target that is a number; 'room' has 3 classes: leave it out. p_",
        ),
        (("--no-noise",), "--no-noise is for a target that is a number"),
        (("--coverage", "90"), "--coverage is a share: give 0.9 for 90 %"),
        (("--coverage", "1"), "--coverage lies strictly between 0 and 1, not 1"),
        (("--coverage", "-0.2"), "--coverage lies strictly between 0 and 1, not -0.2"),
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
        require_options(numeric, percentiles=True, coverage=True)
    require_options(numeric, percentiles=True, coverage=False)


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


def test_chunks_change_nothing(rooms: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    table = rooms_table(rows=50, seed=8)
    options = PredictOptions(samples=16)
    whole = score_table(table, LocalScorer(rooms), options).columns
    monkeypatch.setattr("murho.cli.batch_prediction.ROWS_PER_CHUNK", 7)
    parts = score_table(table, LocalScorer(rooms), options).columns
    assert list(whole) == list(parts) == COLUMNS
    assert whole["prediction_set"].tolist() == parts["prediction_set"].tolist()
    np.testing.assert_allclose(parts["entropy"], whole["entropy"], rtol=1e-5)


def test_an_answer_of_the_service_has_the_same_columns() -> None:
    answer: Any = SimpleNamespace(
        samples=8,
        seed=1,
        calibrated=True,
        epistemic_std=None,
        draws=None,
        mc_error=None,
        prediction=["a", "b"],
        probabilities=np.array([[0.9, 0.1], [0.3, 0.7]]),
        entropy=np.array([0.3, 0.6]),
        epistemic_entropy=np.array([0.1, 0.1]),
        prediction_set=[["a"], ["a", "b"]],
    )
    columns = answer_columns(class_prediction_of(answer, ("a", "b")), PredictOptions())
    assert list(columns) == ["prediction", "p_a", "p_b", "entropy", "epistemic_entropy", "prediction_set"]
    assert columns["p_b"].tolist() == [0.1, 0.7]
    assert lists_as_text(columns["prediction_set"]).tolist() == ['["a"]', '["a", "b"]']
    assert lists_as_text(columns["prediction"]).tolist() == ["a", "b"]


def test_a_client_that_does_not_know_classes_is_named() -> None:
    described = {
        "name": "rooms",
        "version": "1",
        "versions": ["1"],
        "task": "classification",
        "target": {"name": "room", "classes": ["a", "b"]},
        "features": [
            {"name": "size", "kind": "numeric", "unit": None, "min": 0, "max": 9, "categories": None, "missing": True}
        ],
        "metrics": {},
    }

    class Older:
        """A client of before there were classes."""

        def model(self, *_: object) -> Any:
            return SimpleNamespace(raw=described)

        def predict(self, inputs: object, model: str, version: None, *, samples: int) -> None:
            raise AssertionError((inputs, model, version, samples))

    scorer = ServiceScorer(Older(), "rooms")  # type: ignore[arg-type]
    assert scorer.schema.target.classes == ("a", "b")
    with pytest.raises(OptionError, match="does not know classes: pip install"):
        scorer.score({"size": np.array([1.0])}, PredictOptions())
