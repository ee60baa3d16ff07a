"""Reports as files: of a training, of labelled rows, of an update, of a pruning, of a classifier."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from unittest import mock

import orjson
import pytest

from murho.model.evaluation.judging import evaluate_table
from murho.model.report import files
from murho.model.report.charts import charts
from murho.model.report.facts import facts_of_revision, facts_of_spec, facts_of_training
from murho.model.report.files import can_draw, html_page, report_of_rows, revision_report, training_report
from murho.model.training.options import UpdateOptions
from murho.model.training.pruning import prune
from murho.model.training.revisions import LabelledRows, Revised, labelled_rows
from murho.model.training.updating import update
from tests.model.conftest import Notes, make_table, present
from tests.model.rooms import rooms_table, train_rooms

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.training.train import Trained


def test_stored_facts_hold_no_row_and_without_rows_the_page_holds_none(trained: Trained) -> None:
    files = training_report("rent", trained, with_rows=False)
    assert b"surprising" not in files["report.html"]
    stored = orjson.loads(files["report/facts.json"])
    numbers = set()

    def collect(value: object) -> None:
        if isinstance(value, dict):
            for part in value.values():
                collect(part)
        elif isinstance(value, list):
            for part in value:
                collect(part)
        elif isinstance(value, float):
            numbers.add(value)

    collect({key: stored[key] for key in ("held_out", "doubt", "training")})
    rounded = {float(f"{target:.6g}") for target in trained.evidence.targets}
    # The median of a bin with an odd number of rows is a target, without the row that it belongs to.
    assert len(rounded & numbers) <= len(stored["held_out"]["agreement"])


def test_scores_and_coverage_are_those_of_an_evaluation(rent: Posterior) -> None:
    table = make_table(90, seed=5)
    made, rows, _ = report_of_rows(rent, facts_of_spec(rent.spec), table, "flats.csv")
    evaluated = evaluate_table(rent, table)
    assert made["source"] == "flats.csv"
    assert made["scores"]["crps"] == pytest.approx(evaluated["crps"], rel=1e-5)
    for kind in ("raw", "calibrated"):
        assert made["held_out"][kind]["coverage"] == pytest.approx(evaluated[kind]["coverage"])
        bands = made["held_out"][kind]["reliability"]["bands"]
        assert bands[17] == pytest.approx(evaluated[kind]["coverage"]["90"], abs=0.012)
    inside = [point["lower"] <= point["observed"] <= point["upper"] for point in rows["points"]]
    assert sum(inside) / 90 == pytest.approx(evaluated["calibrated"]["coverage"]["90"], abs=0.012)


def test_of_many_rows_some_are_taken(rent: Posterior) -> None:
    with mock.patch.object(files, "MOST_ROWS", 30):
        made, _, left_out = report_of_rows(rent, facts_of_spec(rent.spec), make_table(60, seed=5), "flats.csv")
    assert (left_out, made["held_out"]["n"]) == (0, 30)


@pytest.fixture(scope="module")
def new_rows(trained: Trained) -> LabelledRows:
    return labelled_rows(make_table(60, seed=5), trained.posterior)


@pytest.fixture(scope="module")
def updated(trained: Trained, new_rows: LabelledRows) -> Revised:
    return update(trained.posterior, new_rows, UpdateOptions(epochs=6), reporter=Notes())


@pytest.fixture(scope="module")
def pruned(trained: Trained, new_rows: LabelledRows) -> Revised:
    return prune(trained.posterior, 0.5, new_rows)


def test_an_update_goes_on_where_the_training_ended_and_is_judged_by_the_new_rows(
    updated: Revised, new_rows: LabelledRows, facts: dict[str, Any]
) -> None:
    of_update = facts_of_revision(updated, new_rows, facts)
    *before, fit = of_update["training"]["curves"]
    assert before == facts["training"]["curves"]
    assert (fit["stage"], fit["epoch"]) == ("update", [1, 2, 3, 4, 5, 6])
    assert of_update["training"]["candidates"] == facts["training"]["candidates"]
    assert of_update["table"]["features"] == facts["table"]["features"]
    assert of_update["table"]["rows"] == facts["table"]["rows"] + len(new_rows)
    assert of_update["held_out"]["n"] == of_update["scores"]["n"] == len(new_rows)
    assert of_update["doubt"]["rows"] == len(new_rows)
    revision = of_update["revision"]
    assert revision["scores"]["after"]["nll"] == pytest.approx(present(updated.after)["nll"], rel=1e-5)
    assert revision["kl"] == pytest.approx(updated.facts["kl"], rel=1e-5)


def test_too_few_new_rows_to_hold_out_leave_the_scores_of_the_version_before(
    trained: Trained, facts: dict[str, Any]
) -> None:
    few = labelled_rows(make_table(5, seed=6), trained.posterior)
    updated = update(trained.posterior, few, UpdateOptions(epochs=2), reporter=Notes())
    files = revision_report("rent", updated, few, facts)
    stored = orjson.loads(files["report/facts.json"])
    assert stored["held_out"] is None
    assert stored["scores"]["n"] == facts["scores"]["n"]
    page = files["report.html"].decode()
    assert "too few new rows to hold any out" in page
    assert "surprising" not in page


def test_a_pruning_keeps_no_score_of_the_whole_network(trained: Trained, facts: dict[str, Any]) -> None:
    bare = facts_of_revision(prune(trained.posterior, 0.5), None, facts)
    assert bare["scores"] == {}
    assert (bare["held_out"], bare["doubt"]) == (None, None)
    page = revision_report("rent", prune(trained.posterior, 0.5), None, facts)["report.html"].decode()
    assert "It was not judged" in page
    assert "The checkpoint has no scores" in page


def test_the_page_says_what_changed(
    updated: Revised, pruned: Revised, new_rows: LabelledRows, facts: dict[str, Any]
) -> None:
    files = revision_report("rent", updated, new_rows, facts)
    page = files["report.html"].decode()
    assert "What has changed?" in page
    assert "updated with 60 new rows" in page
    assert "report/predicted.png" in files
    files = revision_report("rent", pruned, new_rows, facts)
    assert "of its weights were removed" in files["report.html"].decode()
    hidden = revision_report("rent", pruned, new_rows, facts, with_rows=False)
    assert "surprising" in files["report.html"].decode()
    assert "surprising" not in hidden["report.html"].decode()


def test_a_version_without_stored_facts_can_be_revised(updated: Revised, new_rows: LabelledRows) -> None:
    before = facts_of_spec(updated.posterior.spec)
    (fit,) = facts_of_revision(updated, new_rows, before)["training"]["curves"]
    assert fit["stage"] == "update"
    assert "report.html" in revision_report("rent", updated, new_rows, before)


@pytest.fixture(scope="module")
def small_rooms() -> Trained:
    return train_rooms(rooms_table())


@pytest.fixture(scope="module")
def facts_of_rooms(small_rooms: Trained) -> dict[str, Any]:
    return facts_of_training(small_rooms)


def test_there_is_a_chart_for_each_question_but_no_picture_of_the_confusions_of_many_classes(
    facts_of_rooms: dict[str, Any],
) -> None:
    assert json.loads(json.dumps(facts_of_rooms, allow_nan=False)) == facts_of_rooms
    names = [chart.name for chart in charts(facts_of_rooms)]
    assert names == ["reliability", "confusion", "coverage", "doubt", "importance", "shares", "curves"]
    held_out = facts_of_rooms["held_out"]
    by_class = {f"{name} {number}": part for number in range(10) for name, part in held_out["by_class"].items()}
    many = charts({**facts_of_rooms, "held_out": {**held_out, "by_class": by_class}})
    assert [chart.name for chart in many] == [name for name in names if name != "confusion"]


def test_the_page_has_scores_classes_and_surprising_rows(small_rooms: Trained) -> None:
    files = training_report("small_rooms", small_rooms)
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


def test_new_rows_are_judged_by_all_members(small_rooms: Trained, facts_of_rooms: dict[str, Any]) -> None:
    made, rows, _ = report_of_rows(small_rooms.posterior, facts_of_rooms, rooms_table(80, seed=4), "rooms.csv")
    assert made["held_out"]["n"] == 80
    assert made["scores"]["n"] == 80
    assert made["target"] == facts_of_rooms["target"]  # as the features beside it: of the training
    assert len(rows["surprising"]) == 10
    assert "80 labelled rows of rooms.csv" in html_page("small_rooms", made, [], rows)
