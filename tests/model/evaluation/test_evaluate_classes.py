"""Evaluation of a classifier on a table: the scores are those of its answers, and what is odd is said."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn import metrics

from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import TableError
from murho.model.evaluation import judging
from murho.model.evaluation.judging import evaluate_table
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table, read_targets
from tests.model.rooms import rooms_table

SCORES = {"accuracy", "balanced_accuracy", "log_loss", "brier", "auc", "ece", "classwise_ece"}


@pytest.fixture(scope="module")
def report(rooms: Posterior) -> dict[str, Any]:
    return evaluate_table(rooms, rooms_table(rows=200, seed=5))


def renamed(table: pa.Table, names: dict[int, str | None]) -> pa.Table:
    """Return the table with other classes in some rows."""
    labels = table.column("room").to_pylist()
    for row, name in names.items():
        labels[row] = name
    return table.set_column(table.column_names.index("room"), "room", [labels])


@pytest.mark.parametrize("calibrated", [True, False])
def test_scores_are_those_of_the_answers_and_equal_scikit_learns(
    rooms: Posterior, report: dict[str, Any], *, calibrated: bool
) -> None:
    table = rooms_table(rows=200, seed=5)
    columns = columns_from_table(table, rooms.schema)
    answer = rooms.predict(columns, PredictOptions(calibrated=calibrated))
    labels = read_targets(table, rooms.schema.target).astype(int)
    scores = report["calibrated" if calibrated else "raw"]
    assert scores["log_loss"] == pytest.approx(metrics.log_loss(labels, answer.probabilities), abs=1e-6)
    assert scores["accuracy"] == metrics.accuracy_score(labels, answer.prediction)
    inside = answer.prediction_set[np.arange(len(labels)), labels]
    assert scores["sets"]["coverage"]["90"] == pytest.approx(inside.mean())
    assert scores["sets"]["size"]["90"] == pytest.approx(answer.prediction_set.sum(axis=1).mean())


def test_parts_of_the_rows_add_up(report: dict[str, Any]) -> None:
    assert set(report["by_category"]) == {"district", "lift"}
    parts = [report["by_confidence"], list(report["by_class"].values()), *report["by_category"].values()]
    for groups in parts:
        assert sum(group["rows"] for group in groups) == 200
        right = sum(group["rows"] * group["accuracy"] for group in groups)
        assert right / 200.0 == pytest.approx(report["accuracy"])
        covered = sum(group["rows"] * group["coverage"] for group in groups)
        assert covered / 200.0 == pytest.approx(report["sets"]["coverage"]["90"])
    confusion = np.array(report["confusion"])
    assert confusion.sum() == 200
    assert np.trace(confusion) / 200.0 == report["accuracy"]


def test_chunks_change_nothing(rooms: Posterior, report: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "ROWS_PER_CHUNK", 33)
    monkeypatch.setattr(judging, "MOST_ROWS_PER_PASS", 10)
    done: list[int] = []
    parts = evaluate_table(rooms, rooms_table(rows=200, seed=5), advance=done.append)
    assert sum(done) == 200
    assert len(done) == 7
    assert parts["log_loss"] == pytest.approx(report["log_loss"], rel=1e-5)
    for key in ("confusion", "n", "left_out"):
        assert parts[key] == report[key]
    categories = {name: [part["rows"] for part in parts_of] for name, parts_of in parts["by_category"].items()}
    assert categories == {name: [part["rows"] for part in whole] for name, whole in report["by_category"].items()}


def test_a_weight_of_two_is_a_row_given_twice(rooms: Posterior) -> None:
    table = rooms_table(rows=60, seed=9)
    copies = np.arange(60) % 3
    weighted = evaluate_table(rooms, table.append_column("w", [copies.astype(float)]), weight="w")
    copied = evaluate_table(rooms, table.take(np.repeat(np.arange(60), copies)))
    assert weighted["left_out"] == 20
    for name in SCORES:
        assert weighted[name] == pytest.approx(copied[name], rel=1e-6)
    assert weighted["confusion"] == copied["confusion"]
    assert weighted["entropy"] == pytest.approx(copied["entropy"], rel=1e-6)


def test_classes_that_the_model_does_not_know_are_counted_and_as_misses_too(rooms: Posterior) -> None:
    table = rooms_table(rows=40, seed=2)
    known = evaluate_table(rooms, table.slice(0, 36))
    judged = evaluate_table(rooms, renamed(table, {36: "cellar", 37: "cellar", 38: "attic", 39: None}))
    unknown = judged["unknown"]
    assert (unknown["rows"], unknown["classes"]) == (3, {"cellar": 2, "attic": 1})
    assert unknown["accuracy"] == pytest.approx(known["accuracy"] * 36 / 39)
    assert {name: judged[name] for name in ("n", *SCORES)} == {name: known[name] for name in ("n", *SCORES)}
    assert judged["left_out"] == 1


def test_a_table_of_unknown_classes_alone_says_what_to_do(rooms: Posterior) -> None:
    table = rooms_table(rows=3, seed=2)
    with pytest.raises(TableError, match=r"'cellar' \(3\), it knows 'bath .* train again"):
        evaluate_table(rooms, renamed(table, dict.fromkeys(range(3), "cellar")))
    with pytest.raises(TableError, match="nothing to judge by"):
        evaluate_table(rooms, renamed(table, dict.fromkeys(range(3))))
