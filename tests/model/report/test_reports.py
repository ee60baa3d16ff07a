"""Reports as files: of a training, of labelled rows, of an update, of a pruning, of a classifier."""

from dataclasses import replace
from typing import Any
from unittest import mock

import orjson
import pytest

from murho.model.checkpoint.posterior import Posterior
from murho.model.evaluation.judging import evaluate_table
from murho.model.report import reports
from murho.model.report.charts import charts
from murho.model.report.facts import FACTS_PATH
from murho.model.report.reports import html_page, report_of_rows, revision_report, training_report
from murho.model.training.options import UpdateOptions
from murho.model.training.pruning import prune
from murho.model.training.revisions import LabelledRows, Revised, labelled_rows
from murho.model.training.train import Trained
from murho.model.training.updating import update
from tests.model.conftest import Notes, make_table, present
from tests.model.rooms import rooms_table, train_rooms


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

    collect({key: stored[key] for key in ("held_out", "curves")})
    targets = set(trained.evidence.targets.tolist())
    # The median of a bin with an odd number of rows is a target, without the row that it belongs to.
    assert len(targets & numbers) <= len(stored["held_out"]["agreement"])


def test_scores_and_coverage_are_those_of_an_evaluation(rent: Posterior) -> None:
    table = make_table(90, seed=5)
    made, rows, _ = report_of_rows(rent, table, "flats.csv")
    evaluated = evaluate_table(rent, table)
    assert made["source"] == "flats.csv"
    assert made["held_out"]["crps"] == pytest.approx(evaluated["crps"], rel=1e-5)
    for kind in ("raw", "calibrated"):
        assert made["held_out"][kind]["coverage"] == pytest.approx(evaluated[kind]["coverage"])
        bands = made["held_out"][kind]["reliability"]["bands"]
        assert bands[17] == pytest.approx(evaluated[kind]["coverage"]["90"], abs=0.012)
    assert {row["observed"] for row in rows} <= {*table["rent"].to_pylist()}


def test_of_many_rows_some_are_taken(rent: Posterior) -> None:
    with mock.patch.object(reports, "MOST_ROWS", 30):
        made, _, left_out = report_of_rows(rent, make_table(60, seed=5), "flats.csv")
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


def facts_in(files: dict[str, bytes]) -> dict[str, Any]:
    facts: dict[str, Any] = orjson.loads(files[str(FACTS_PATH)])
    return facts


def test_an_update_is_judged_by_the_new_rows_and_the_page_says_what_changed(
    updated: Revised, new_rows: LabelledRows
) -> None:
    files = revision_report("rent", updated, new_rows)
    facts, page = facts_in(files), files["report.html"].decode()
    (fit,) = facts["curves"]
    assert (fit["stage"], fit["epoch"]) == ("update", [1, 2, 3, 4, 5, 6])
    assert facts["held_out"]["n"] == len(new_rows)
    assert facts["held_out"]["nll"] == present(updated.after)["nll"]
    assert "What has changed?" in page
    assert "updated with 60 new rows" in page


def test_too_few_new_rows_to_hold_out_leave_the_scores_of_the_version_before(trained: Trained) -> None:
    few = labelled_rows(make_table(5, seed=6), trained.posterior)
    updated = update(trained.posterior, few, UpdateOptions(epochs=2), reporter=Notes())
    files = revision_report("rent", updated, few)
    assert facts_in(files)["held_out"] is None
    page = files["report.html"].decode()
    assert f"On {trained.spec.metrics['n']} rows" in page
    assert "too few new rows to hold any out" in page
    assert "surprising" not in page


def test_a_pruning_keeps_no_score_of_the_whole_network(trained: Trained) -> None:
    files = revision_report("rent", prune(trained.posterior, 0.5), None)
    assert set(facts_in(files)) == {"format"}
    page = files["report.html"].decode()
    assert "It was not judged" in page
    assert "The checkpoint has no scores" in page


def test_a_pruning_is_judged_by_labelled_rows_which_it_may_hide(pruned: Revised, new_rows: LabelledRows) -> None:
    page = revision_report("rent", pruned, new_rows)["report.html"].decode()
    assert "of its weights were removed" in page
    assert "surprising" in page
    hidden = revision_report("rent", pruned, new_rows, with_rows=False)
    assert "surprising" not in hidden["report.html"].decode()


def test_the_latest_revision_is_the_one_that_the_page_shows(pruned: Revised) -> None:
    record = pruned.posterior.spec.records["pruning"]
    records = {"update": {**record, "from_version": "9"}, "pruning": {**record, "from_version": "10"}}
    assert "Version 10 was pruned" in html_page("rent", replace(pruned.posterior.spec, records=records), {})


@pytest.fixture(scope="module")
def small_rooms() -> Trained:
    return train_rooms(rooms_table())


def test_the_page_of_classes_has_charts_scores_and_surprising_rows(small_rooms: Trained) -> None:
    files = training_report("small_rooms", small_rooms)
    facts, page, target = facts_in(files), files["report.html"].decode(), small_rooms.spec.schema.target
    names = [chart.name for chart in charts(target, facts)]
    assert names == ["confusion", "reliability", "coverage", "importance", "curves"]
    for words in ("log loss", "Prediction sets", "kitchen", "Recall and precision", "The most surprising rows"):
        assert words in page
    assert "CRPS" not in page
    held_out = facts["held_out"]
    by_class = {f"{name} {number}": part for number in range(10) for name, part in held_out["by_class"].items()}
    many = charts(target, {**facts, "held_out": {**held_out, "by_class": by_class}})
    assert [chart.name for chart in many] == names[1:]


def test_new_rows_are_judged_by_all_members(small_rooms: Trained) -> None:
    made, rows, _ = report_of_rows(small_rooms.posterior, rooms_table(80, seed=4), "rooms.csv")
    assert made["held_out"]["n"] == 80
    assert len(rows) == 10
    assert "80 labelled rows of rooms.csv" in html_page("small_rooms", small_rooms.spec, made, rows)
