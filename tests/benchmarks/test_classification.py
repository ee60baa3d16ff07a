"""The classification benchmark: its tables, its tasks and scores, with made-up reports and a peer of our own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from benchmarks import class_runs, classification, peer_runs, processes
from benchmarks.class_fits import filled_in, line_of
from benchmarks.class_runs import ClassTrials, inner_rows_of_classes, labelled, scores_of
from benchmarks.class_tables import CLASSES
from benchmarks.datasets import DataSet, Split, read_set, splits
from benchmarks.peer_runs import kept_runs, run_peer
from benchmarks.peers import Library, Peer
from benchmarks.peers.class_task import ClassAnswer, ClassTask
from tests.benchmarks.stand_ins import make_package

if TYPE_CHECKING:
    from collections.abc import Mapping

ROWS = 100
SMALL = DataSet("small", "classification/small.csv", ROWS, "kind", "nowhere")
OWN = Peer("classes", "own", "our own", Library("own", ("own==1",)), calibration=Library("map", ("map==1",)))


@pytest.fixture
def table() -> pa.Table:
    generator = np.random.default_rng(0)
    kinds = ["b", "a", "b", "c"] * 25
    kinds[17] = "rare"
    return pa.table({"x": [f"{value:.4f}" for value in generator.normal(size=ROWS)], "kind": kinds})


@pytest.fixture
def split() -> Split:
    rest = np.delete(np.arange(ROWS), 17)
    return Split(rest[:80], np.array([*rest[80:], 17]))


def _report(raw: float, calibrated: float, rows: int = 50, ece: float = 0.03) -> dict[str, Any]:
    def scores(loss: float) -> dict[str, Any]:
        return {"log_loss": loss, "brier": loss / 2, "ece": ece, "auc": None, "accuracy": 0.9, "log_loss_error": 0.01}

    return {"rows": rows, "raw": scores(raw), "calibrated": scores(calibrated), "seconds": 1.0}


def test_splits_are_the_five_of_80_and_20_per_cent() -> None:
    for dataset in CLASSES.values():
        first, *_ = made = splits(dataset, dataset.rows, 5)
        assert len(made) == 5
        assert np.array_equal(
            first.training, np.random.default_rng(0).permutation(dataset.rows)[: int(0.8 * dataset.rows)]
        )


def test_a_table_without_a_header_gets_one_and_its_missing_cells(tmp_path: Path) -> None:
    (tmp_path / "mushroom").mkdir()
    names = CLASSES["mushroom"].header
    cells = ["p", *("x" for _ in names[1:])]
    missing = [*cells[:11], "?", *cells[12:]]
    (tmp_path / "mushroom" / "agaricus-lepiota.data").write_text(f"{','.join(cells)}\n{','.join(missing)}\n")
    dataset = DataSet("two", CLASSES["mushroom"].file, 2, "class", "nowhere", header=names)
    read = read_set(dataset, tmp_path)
    assert read["stalk_root"].to_pylist() == ["x", None]
    assert read["class"].to_pylist() == ["p", "p"]


def test_rows_of_a_class_that_no_training_row_has_are_not_asked_about(table: pa.Table, split: Split) -> None:
    rows = labelled(table, SMALL, split)
    assert rows.classes == ("a", "b", "c")
    assert 17 not in rows.test
    assert len(rows.test) == len(rows.truth) == 19
    names = np.array(rows.classes)
    assert names[rows.labels].tolist() == [table["kind"][int(row)].as_py() for row in rows.training]
    assert names[rows.truth].tolist() == [table["kind"][int(row)].as_py() for row in rows.test]


def test_inner_rows_are_15_per_cent_and_leave_a_row_of_each_class() -> None:
    labels = np.array([0] * 60 + [1] * 39 + [2])
    for split in range(20):
        inner = inner_rows_of_classes(labels, split)
        assert inner.sum() == 15
        assert set(labels[~inner]) == {0, 1, 2}
    assert np.array_equal(inner_rows_of_classes(labels, 3), inner_rows_of_classes(labels, 3))
    assert not np.array_equal(inner_rows_of_classes(labels, 3), inner_rows_of_classes(labels, 4))


def test_a_task_has_no_class_of_a_test_row_and_survives_its_packing(table: pa.Table, split: Split) -> None:
    task = ClassTask.unpacked(ClassTrials.of(table, SMALL, [split]).task(0))
    assert len(task.training) == len(task.labels) == 80
    assert len(task.test) == 19
    assert task.classes == 3
    assert task.inner.sum() == 12
    answer = ClassAnswer(np.eye(3), np.eye(3), np.eye(3) / 2.0, rounds=4)
    np.testing.assert_array_equal(ClassAnswer.unpacked(answer.packed()).inner, answer.inner)


def test_scores_of_probabilities_known_by_hand() -> None:
    scores = scores_of(np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0, 1]))
    assert scores["log_loss"] == pytest.approx(-np.log([0.8, 0.6]).mean())
    assert scores["brier"] == pytest.approx((0.2**2 + 0.4**2) / 2)
    assert scores["auc"] == scores["accuracy"] == 1.0
    assert scores["log_loss_error"] == pytest.approx(np.log(0.8 / 0.6) / 2)


SCRIPTS: Mapping[str, str] = {
    "own": """
import numpy as np
from benchmarks.peers.class_task import ClassAnswer, classes_session
from benchmarks.peers.exchange import drive

def answer(task):
    def of(rows):
        return np.full((rows, task.classes), 1.0 / task.classes)
    return ClassAnswer(of(len(task.test)), of(len(task.test)), of(int(task.inner.sum())), rounds=1.0)

drive(classes=classes_session(answer))
""",
    "map": """
import numpy as np
from benchmarks.peers.class_task import Calibrated, calibration_session
from benchmarks.peers.exchange import drive

def calibrate(task):
    shares = np.bincount(task.labels, minlength=task.inner.shape[1]) + 1.0
    return Calibrated(np.tile(shares / shares.sum(), (len(task.test), 1)))

drive(calibration=calibration_session(calibrate))
""",
}


def test_a_peer_is_run_and_calibrated_and_its_scores_are_kept(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "classification").mkdir()
    lines = [f"{row['x']},{row['kind']}" for row in table.to_pylist()]
    (tmp_path / SMALL.file).write_text("\n".join(["x,kind", *lines]) + "\n", encoding="utf-8")
    package = make_package(tmp_path)
    for name, text in SCRIPTS.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(processes, "ROOT", tmp_path)
    monkeypatch.setattr(peer_runs, "environment", lambda *_, **__: Path(sys.executable))
    monkeypatch.setattr(class_runs, "CALIBRATOR", Peer("calibration", "map", "map", Library("map", ("map==1",))))
    said: list[str] = []
    results = tmp_path / "results"
    runs = run_peer(OWN, SMALL, tmp_path, 1, results=results, cache=tmp_path, say=said.append, trials=ClassTrials.of)
    classes = len(set(table["kind"].to_pylist()))
    assert runs[0]["raw"]["log_loss"] == pytest.approx(np.log(classes))
    assert runs[0]["calibrated"]["log_loss"] < runs[0]["raw"]["log_loss"]
    assert "log loss raw 1.3" in said[0]
    assert orjson.loads((results / "own-small.json").read_bytes())["requirements"] == ["own==1", "map==1"]
    assert kept_runs(OWN, "small", results).keys() == {0}


def test_a_table_of_a_set_has_a_line_for_each_answer_the_lowest_system_first() -> None:
    text = classification.render_set(
        "banknote", {"realmlp-classes": [_report(0.5, 0.4)] * 2, "Murho": [_report(0.1, 0.2)] * 2}
    )
    lines = text.splitlines()
    assert lines[2].startswith("Murho")
    assert "calibrated *" in lines[3]  # Murho counts with what it serves
    assert lines[4].startswith("RealMLP")
    assert "nan" in lines[2]  # an AUC that there is not


def test_the_summary_says_where_murho_is_lowest_and_how_well_calibrated() -> None:
    text = classification.render_summary(
        {
            "banknote": {"Murho": [_report(0.1, 0.2)], "realmlp-classes": [_report(0.5, 0.4)]},
            "adult": {
                "Murho": [_report(0.3, 0.303, rows=6000, ece=0.01)],
                "catboost-classes": [_report(0.3, 0.31, rows=6000)],
            },
        }
    )
    assert "lowest log loss on 1 of 2 sets; at worst it is +1.0 %" in text
    assert "at most 0.02 on 1 of 1: adult 0.010" in text


def test_cells_that_are_never_missing_in_training_are_filled_in_for_murho() -> None:
    training = pa.table({"x": ["a", "b", "b"], "y": ["1", None, "2"]})
    filled = filled_in(pa.table({"x": [None, "a"], "y": [None, "1"]}), training)
    assert filled["x"].to_pylist() == ["b", "a"]
    assert filled["y"].to_pylist() == [None, "1"]


def test_a_fit_in_short() -> None:
    assert line_of(_report(0.1, 0.2) | {"map": "beta"}) == "log loss raw 0.1000 calibrated 0.2000 (beta)"


def test_without_the_data_the_command_says_where_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data", str(tmp_path), "--output", str(tmp_path / "out"), "--only-murho", "--sets", "mushroom"]
    assert classification.main(arguments) == 1
    assert "make it from agaricus-lepiota.data" in capsys.readouterr().err
    assert classification.main(["--data", str(tmp_path), "--peers", "oracle"]) == 1
    assert "'oracle' is none of catboost-classes" in capsys.readouterr().err
