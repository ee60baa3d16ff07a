"""Updates and prunings of classifiers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from murho.cli.revision import pruned_lines, updated_lines
from murho.model.calibration.conformal import POOLED
from murho.model.checkpoint.checkpoint import write_checkpoint
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ClassShares
from murho.model.errors import TableError
from murho.model.evaluation.judging import evaluate_table
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from murho.model.training.options import UpdateOptions
from murho.model.training.pruning import prune
from murho.model.training.revisions import labelled_rows
from murho.model.training.updating import Updated, update
from tests.model.conftest import Notes, present
from tests.model.maps import calibration_of
from tests.model.rooms import CLASSES, rooms_table

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


@pytest.fixture(scope="module")
def revision(room_checkpoints: Path) -> Posterior:
    return Posterior.load(room_checkpoints / "rooms" / "1")


def turned(table: pa.Table) -> pa.Table:
    """The table with the first two classes exchanged: what the checkpoint has learned is wrong there."""
    swapped = {CLASSES[0]: CLASSES[1], CLASSES[1]: CLASSES[0]}
    labels = [swapped.get(label, label) for label in table.column("room").to_pylist()]
    return table.set_column(table.column_names.index("room"), "room", [labels])


def updated(revision: Posterior, table: pa.Table, **options: Any) -> Updated:
    rows = labelled_rows(table, revision)
    return update(revision, rows, UpdateOptions(**({"epochs": 60} | options)), reporter=Notes())


@pytest.fixture(scope="module")
def learned(revision: Posterior) -> Updated:
    return updated(revision, turned(rooms_table(rows=400, seed=3)), epochs=100)


def test_an_update_learns_what_is_new(learned: Updated) -> None:
    assert learned.held_out
    assert learned.after["log_loss"] < 0.7 * learned.before["log_loss"]
    assert learned.after["accuracy"] > learned.before["accuracy"] + 0.2
    fresh = turned(rooms_table(rows=300, seed=11))
    judged = evaluate_table(learned.posterior, fresh)
    assert judged["log_loss"] == pytest.approx(learned.after["log_loss"], rel=0.25)


def test_the_calibration_is_pooled_with_the_earlier_one(revision: Posterior, learned: Updated) -> None:
    before, after = (calibration_of(each.spec) for each in (revision, learned.posterior))
    assert learned.calibration == "pooled"
    assert after.rows == before.rows + 400 == 640
    assert after.map.floor == pytest.approx(0.25 / 641)
    assert after.sets.method == POOLED


def test_the_shares_of_the_classes_are_those_of_all_rows(revision: Posterior, learned: Updated) -> None:
    counts = np.zeros(3)
    for table in (rooms_table(), turned(rooms_table(rows=400, seed=3))):
        counts += [table.column("room").to_pylist().count(name) for name in CLASSES]
    shares = present(learned.posterior.spec.likelihood.shares)
    assert shares.values == pytest.approx((counts + 1.0) / (counts.sum() + 3.0))
    assert shares.weight < present(revision.spec.likelihood.shares).weight


def test_model_json_has_the_scores_and_reads_back(revision: Posterior, learned: Updated, tmp_path: Path) -> None:
    facts = learned.posterior.spec.records["update"]
    assert set(facts["before"]) == set(facts["after"]) == {"log_loss", "accuracy", "brier"}
    assert facts["total_rows"] == 640
    directory = write_checkpoint(tmp_path, "rooms", learned.posterior.spec, learned.posterior.tensors)
    again = Posterior.load(directory)
    columns = columns_from_table(rooms_table(rows=5, seed=1), again.schema)
    expected = learned.posterior.predict(columns, PredictOptions())
    found = again.predict(columns, PredictOptions())
    np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=1e-9)
    assert again.spec.metrics["log_loss"] == learned.after["log_loss"]


def test_the_report_of_an_update_speaks_of_classes(learned: Updated) -> None:
    lines = updated_lines(learned)
    assert "on 400 rows" in lines
    for title in ("version 1", "now"):
        (scores,) = (line for line in lines if line.startswith(f"{title}  "))
        assert "log loss " in scores
        assert "accuracy " in scores
    assert any(line.startswith("90 % sets hold the class") for line in lines)
    assert "probabilities and sets calibrated on 400 new rows and the 240 of version 1" in lines
    assert any("a single member, that has not seen the row" in line for line in lines)
    assert not any("bands" in line for line in lines)


def test_few_rows_leave_the_calibration_and_change_little(revision: Posterior) -> None:
    few = updated(revision, rooms_table(rows=6, seed=5))
    assert (few.held_out, few.calibration) == (False, "kept")
    assert few.posterior.spec.calibration == revision.spec.calibration
    assert few.before["calibrated"]["log_loss"] == few.before["log_loss"]
    columns = columns_from_table(rooms_table(rows=50, seed=6), revision.schema)
    old, new = (each.predict(columns, PredictOptions()).probabilities for each in (revision, few.posterior))
    assert np.abs(old - new).mean() < 0.03


def test_scores_before_are_those_of_the_answers_of_the_version_before(revision: Posterior) -> None:
    table = rooms_table(rows=6, seed=5)
    few = updated(revision, table)
    judged = evaluate_table(revision, table)
    assert few.before["accuracy"] == judged["accuracy"]
    assert few.before["log_loss"] == pytest.approx(judged["log_loss"], rel=0.05)


def test_a_version_without_calibration_gets_one_from_fifty_rows_on(revision: Posterior) -> None:
    spec = replace(revision.spec, calibration=None)
    raw = Posterior(spec, revision.tensors)
    assert updated(raw, rooms_table(rows=40, seed=7), epochs=5).calibration == "none"
    assert updated(raw, rooms_table(rows=60, seed=7), epochs=5).calibration == "made"


def test_a_class_that_the_checkpoint_does_not_know_says_to_train_again(revision: Posterior) -> None:
    table = rooms_table(rows=4, seed=7)
    labels = [*table.column("room").to_pylist()[:2], "attic", None]
    table = table.set_column(table.column_names.index("room"), "room", [labels])
    with pytest.raises(TableError, match=r"row 3: 'attic' is none of the 3 classes .* train again on all rows") as said:
        labelled_rows(table, revision)
    assert said.value.row == 3


def test_a_pruning_without_rows_keeps_the_calibration(revision: Posterior) -> None:
    pruned = prune(revision, 0.5)
    assert pruned.calibration == "kept"
    assert pruned.posterior.spec.metrics == {}
    lines = pruned_lines(pruned)
    assert any(line.startswith("probabilities and sets calibrated as in version 1") for line in lines)


def test_a_pruning_with_rows_scores_and_calibrates_anew(revision: Posterior) -> None:
    pruned = prune(revision, 0.9, labelled_rows(rooms_table(rows=150, seed=8), revision))
    before, after = present(pruned.before), present(pruned.after)
    assert pruned.calibration == "made anew"
    assert calibration_of(pruned.posterior.spec).rows == 150
    assert {"log_loss", "accuracy", "sets"} <= set(before) & set(after)
    assert after["log_loss"] < before["log_loss"] + 0.5
    facts = pruned.posterior.spec.records["pruning"]
    assert set(facts["before"]) == {"log_loss", "accuracy", "brier"}
    assert any("log loss " in line for line in pruned_lines(pruned))


def test_with_few_rows_a_pruning_is_scored_with_the_kept_calibration(revision: Posterior) -> None:
    table = rooms_table(rows=30, seed=9)
    pruned = prune(revision, 0.3, labelled_rows(table, revision))
    assert pruned.calibration == "kept"
    judged = evaluate_table(pruned.posterior, table)
    assert present(pruned.after)["accuracy"] == judged["accuracy"]


def test_shares_after_no_new_row_are_the_same() -> None:
    codes = np.array([0.0, 1.0, 1.0, 2.0])
    shares = ClassShares.of(codes, 3)
    after = shares.after(4, np.array([2.0]))
    assert shares.after(4, codes[:0]).values == pytest.approx(shares.values)
    assert after.values == pytest.approx(ClassShares.of(np.append(codes, 2.0), 3).values)
    assert after.weight == ClassShares.of(np.append(codes, 2.0), 3).weight
