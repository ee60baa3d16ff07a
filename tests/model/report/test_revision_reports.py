"""The reports of an update and of a pruning: what they take over, what they say anew, and what they must not say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from murho.model.report.facts import facts_of_revision, facts_of_spec, facts_of_training
from murho.model.report.files import revision_report
from murho.model.training.options import UpdateOptions
from murho.model.training.pruning import prune
from murho.model.training.revisions import labelled_rows
from murho.model.training.updating import update
from tests.model.conftest import Notes, make_table, present

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.training.revisions import LabelledRows, Revised
    from murho.model.training.train import Trained


@pytest.fixture(scope="module")
def revision(trained: Trained) -> Posterior:
    return trained.posterior


@pytest.fixture(scope="module")
def new_rows(revision: Posterior) -> LabelledRows:
    return labelled_rows(make_table(60, seed=5), revision)


@pytest.fixture(scope="module")
def updated(revision: Posterior, new_rows: LabelledRows) -> Revised:
    return update(revision, new_rows, UpdateOptions(epochs=6), reporter=Notes())


@pytest.fixture(scope="module")
def pruned(revision: Posterior, new_rows: LabelledRows) -> Revised:
    return prune(revision, 0.5, new_rows)


def test_an_update_goes_on_where_the_training_ended(
    updated: Revised, new_rows: LabelledRows, facts: dict[str, Any]
) -> None:
    of_update = facts_of_revision(updated, new_rows, facts)
    *before, fit = of_update["training"]["curves"]
    assert before == facts["training"]["curves"]
    assert (fit["stage"], fit["epoch"]) == ("update", [1, 2, 3, 4, 5, 6])
    assert of_update["training"]["candidates"] == facts["training"]["candidates"]
    assert of_update["table"]["features"] == facts["table"]["features"]
    assert of_update["table"]["rows"] == facts["table"]["rows"] + len(new_rows)


def test_an_update_is_judged_by_the_new_rows(updated: Revised, new_rows: LabelledRows, facts: dict[str, Any]) -> None:
    of_update = facts_of_revision(updated, new_rows, facts)
    assert of_update["held_out"]["n"] == of_update["scores"]["n"] == len(new_rows)
    assert of_update["doubt"]["rows"] == len(new_rows)
    revision = of_update["revision"]
    assert revision["scores"]["after"]["nll"] == pytest.approx(present(updated.after)["nll"], rel=1e-5)
    assert revision["kl"] == pytest.approx(updated.facts["kl"], rel=1e-5)


def test_too_few_new_rows_to_hold_out_leave_the_scores_of_the_version_before(
    revision: Posterior, facts: dict[str, Any]
) -> None:
    few = labelled_rows(make_table(5, seed=6), revision)
    updated = update(revision, few, UpdateOptions(epochs=2), reporter=Notes())
    files = revision_report("rent", updated, few, facts)
    stored = orjson.loads(files["report/facts.json"])
    assert stored["held_out"] is None
    assert stored["scores"]["n"] == facts["scores"]["n"]
    page = files["report.html"].decode()
    assert "too few new rows to hold any out" in page
    assert "surprising" not in page


def test_a_pruning_keeps_no_score_of_the_whole_network(revision: Posterior, facts: dict[str, Any]) -> None:
    bare = facts_of_revision(prune(revision, 0.5), None, facts)
    assert bare["scores"] == {}
    assert (bare["held_out"], bare["doubt"]) == (None, None)
    page = revision_report("rent", prune(revision, 0.5), None, facts)["report.html"].decode()
    assert "It was not judged" in page
    assert "The checkpoint has no scores" in page


def test_the_page_says_what_changed_and_draws_it(
    updated: Revised, pruned: Revised, new_rows: LabelledRows, facts: dict[str, Any]
) -> None:
    files = revision_report("rent", updated, new_rows, facts)
    page = files["report.html"].decode()
    assert "What has changed?" in page
    assert "updated with 60 new rows" in page
    assert "report/predicted.png" in files
    files = revision_report("rent", pruned, new_rows, facts)
    assert "of its weights were removed" in files["report.html"].decode()
    assert files["report/pruning.png"].startswith(b"\x89PNG")
    hidden = revision_report("rent", pruned, new_rows, facts, with_rows=False)
    assert "surprising" in files["report.html"].decode()
    assert "surprising" not in hidden["report.html"].decode()


def test_a_report_of_a_training_has_no_changes(trained: Trained) -> None:
    assert facts_of_training(trained)["revision"] is None


def test_a_version_without_stored_facts_can_be_revised(updated: Revised, new_rows: LabelledRows) -> None:
    before = facts_of_spec(updated.posterior.spec)
    (fit,) = facts_of_revision(updated, new_rows, before)["training"]["curves"]
    assert fit["stage"] == "update"
    assert "report.html" in revision_report("rent", updated, new_rows, before)
