"""The report of a classifier: facts, charts and page, from a training, for new rows, and after a revision."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from murho.model.report.charts import charts
from murho.model.report.facts import facts_of_training
from murho.model.report.files import report_of_rows, training_report
from murho.model.report.page import can_draw, html_page
from murho.model.training.options import make_options
from murho.model.training.train import train
from tests.model.conftest import Notes
from tests.model.training.test_tasks import SMALL, table

if TYPE_CHECKING:
    from murho.model.training.train import Trained


@pytest.fixture(scope="module")
def rooms() -> Trained:
    return train(table(), "room", make_options({**SMALL, "ignore": ("large", "floor")}), reporter=Notes())


@pytest.fixture(scope="module")
def facts(rooms: Trained) -> dict[str, Any]:
    return facts_of_training(rooms)


def test_the_facts_are_plain_json_without_rows(facts: dict[str, Any]) -> None:
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["target"]["classes"] == ["hall", "kitchen", "study"]
    assert sum(facts["target"]["counts"]) == 240
    assert facts["doubt"]["of"] == "entropy"
    assert 0.0 < facts["doubt"]["share"] < 1.0


def test_confusion_and_accuracy_are_those_of_the_metrics(facts: dict[str, Any], rooms: Trained) -> None:
    counts = np.array(facts["held_out"]["confusion"])
    assert counts.sum() == 240
    assert np.trace(counts) / 240 == pytest.approx(rooms.spec.metrics["accuracy"])
    kept = facts["held_out"]["accuracy_of_kept"]
    assert kept["100"] == pytest.approx(rooms.spec.metrics["accuracy"], abs=1e-5)
    assert kept["50"] > kept["100"]
    assert sum(part["rows"] for part in facts["held_out"]["by_confidence"]) == 240


def test_sets_of_the_classes_make_up_those_of_all_rows(facts: dict[str, Any], rooms: Trained) -> None:
    held_out = facts["held_out"]
    parts = held_out["by_class"].values()
    together = sum(part["coverage"] * part["rows"] for part in parts) / 240
    assert together == pytest.approx(rooms.spec.metrics["sets"]["coverage"]["90"], abs=1e-5)


def test_there_is_a_chart_for_each_question(facts: dict[str, Any]) -> None:
    names = [chart.name for chart in charts(facts)]
    assert names == ["reliability", "confusion", "coverage", "doubt", "importance", "curves"]


def test_the_page_has_scores_classes_and_surprising_rows(rooms: Trained) -> None:
    files = training_report("rooms", rooms)
    page = files["report.html"].decode()
    for words in (
        "log loss",
        "Prediction sets",
        "kitchen",
        "The surest rows",
        "The most surprising rows",
        "entropy has two parts",
    ):
        assert words in page
    assert "CRPS" not in page
    assert ("report/confusion.png" in files) is can_draw()


def test_of_many_classes_there_is_no_picture_of_the_confusions() -> None:
    generator = np.random.default_rng(0)
    rows = table(600).select(["size", "light"])
    names = np.array([f"class {number:02d}" for number in range(30)])
    rows = rows.append_column("kind", [names[np.minimum(29, generator.geometric(0.15, 600) - 1)]])
    trained = train(rows, "kind", make_options({**SMALL, "epochs": 5}), reporter=Notes())
    drawn = {chart.name for chart in charts(facts_of_training(trained))}
    assert "coverage" in drawn
    assert "confusion" not in drawn


def test_new_rows_are_judged_by_all_members(rooms: Trained, facts: dict[str, Any]) -> None:
    made, rows, _ = report_of_rows(rooms.posterior, facts, table(80, seed=4), "rooms.csv")
    assert made["held_out"]["n"] == 80
    assert made["scores"]["n"] == 80
    assert len(rows["surprising"]) == 10
    assert "80 labelled rows of rooms.csv" in html_page("rooms", made, [], rows)
