"""The task of a training, and trainings of classifiers from table to checkpoint."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from murho.model.checkpoint.checkpoint import read_stored
from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import OptionError, TableError
from murho.model.predictive.prediction import ClassPrediction, PredictOptions
from murho.model.tables.schema_inference import columns_from_table, read_targets
from murho.model.training.options import make_options
from murho.model.training.prepared_table import choose_classes, prepare_table
from murho.model.training.tasks import is_cap, target_limits
from murho.model.training.train import train
from tests.model.conftest import Notes, present, train_quickly
from tests.model.rooms import CLASSES, QUICK, rooms_table, train_rooms


def table(rows: int = 240, seed: int = 0) -> pa.Table:
    """Rooms that are large or not, and their floors."""
    of_rooms = rooms_table(rows, seed)
    of_rooms = of_rooms.append_column("large", pa.array(of_rooms["size"].to_numpy() > 0.3))
    return of_rooms.append_column("floor", pa.array(np.arange(rows) % 3))


def changed(rows: pa.Table, name: str, cells: object) -> pa.Table:
    """Return the table with other cells in a column."""
    return rows.set_column(rows.column_names.index(name), name, pa.array(cells))


def answer(posterior: Posterior, rows: pa.Table, **options: Any) -> ClassPrediction:
    prediction = posterior.predict(columns_from_table(rows, posterior.schema), PredictOptions(**options))
    assert isinstance(prediction, ClassPrediction)
    return prediction


@pytest.mark.parametrize(
    ("target", "options", "classes"),
    [
        ("room", {}, CLASSES),
        ("large", {}, ("false", "true")),
        ("floor", {}, None),
        ("floor", {"task": "classification"}, ("0", "1", "2")),
        ("floor", {"columns": {"floor": {"kind": "categorical"}}}, ("0", "1", "2")),
    ],
)
def test_text_and_truth_values_are_classes_unless_the_user_says_otherwise(
    target: str, options: dict[str, Any], classes: tuple[str, ...] | None
) -> None:
    assert choose_classes(table(), target, make_options(options), Notes().say) == classes


def test_a_number_with_few_values_is_told_how_to_become_classes() -> None:
    (note,) = prepare_table(table(), "floor", make_options({})).notes
    assert "3 different numbers (0, 1, 2)" in note
    assert "--task classification" in note
    assert not prepare_table(table(), "size", make_options({})).notes


def test_rows_of_every_class_are_told_and_rare_classes_named() -> None:
    notes = Notes()
    rare = pa.concat_tables([table(), changed(table(1), "room", ["attic"])])
    choose_classes(rare, "room", make_options({}), notes.say)
    assert "4 classes" in notes.lines[0]
    assert "'attic' (1)" in notes.lines[1]


@pytest.mark.parametrize(
    ("target", "options", "error", "message"),
    [
        ("room", {"task": "regression"}, TableError, "text or truth values"),
        ("room", {"noise": "mixture"}, OptionError, "--noise is for a target that is a number"),
        ("room", {"target_minimum": 0.0}, OptionError, "--target-minimum"),
        ("nothing", {}, TableError, "not a column"),
    ],
)
def test_what_fits_no_task_is_refused(
    target: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        choose_classes(table(), target, make_options(options), Notes().say)


def test_a_classifier_learns_and_its_answers_are_probabilities(rooms: Posterior) -> None:
    fresh = table(400, seed=1)
    prediction = answer(rooms, fresh)
    codes = read_targets(fresh, rooms.spec.schema.target).astype(int)
    own = prediction.probabilities[np.arange(400), codes]
    shares = np.bincount(codes, minlength=3) / 400
    assert -np.log(own).mean() < 0.8 * -(shares * np.log(shares)).sum()
    assert prediction.probabilities.sum(axis=1) == pytest.approx(np.ones(400))
    assert (prediction.prediction == prediction.probabilities.argmax(axis=1)).all()
    epistemic, sets = present(prediction.epistemic_entropy), present(prediction.prediction_set)
    assert ((epistemic >= 0.0) & (epistemic <= present(prediction.entropy) + 1e-12)).all()
    assert (np.diff(present(prediction.percentiles), axis=2) >= 0.0).all()
    assert sets.any(axis=1).all()
    assert sets[np.arange(400), codes].mean() > 0.82


def test_a_row_far_from_all_training_rows_gets_doubt_and_no_certainty(rooms: Posterior) -> None:
    rows = pa.table({"size": [0.2, 50.0, -400.0], "light": [0.0, -60.0, 300.0], "district": ["east", "west", "south"]})
    rows = rows.append_column("lift", pa.array([True] * 3))
    prediction = answer(rooms, rows)
    assert present(prediction.outlier).tolist() == [False, True, True]
    assert (prediction.probabilities[1:].max(axis=1) < 0.97).all()
    near, _, far = present(prediction.epistemic_entropy)
    assert far > near
    inside = np.where(present(prediction.prediction_set), prediction.probabilities, 0.0).sum(axis=1)
    assert (inside[1:] >= 0.9 - 1e-9).all()


def test_printed_scores_are_about_those_of_fresh_rows(rooms: Posterior) -> None:
    fresh = table(3000, seed=7)
    codes = read_targets(fresh, rooms.spec.schema.target).astype(int)
    own = answer(rooms, fresh).probabilities[np.arange(3000), codes]
    error = rooms.spec.metrics["standard_errors"]["log_loss"]
    assert abs(-np.log(own).mean() - rooms.spec.metrics["log_loss"]) < 4.0 * error


def test_a_class_of_a_single_row_and_missing_cells_are_no_trouble() -> None:
    rows = pa.concat_tables([table(120), changed(table(1), "room", ["attic"])])
    cells = rows.column("size").to_pylist()
    cells[5] = None
    rows = changed(rows, "size", cells).drop_columns(["large", "floor"])
    prediction = answer(train_rooms(rows).posterior, rows)
    assert prediction.classes == ("attic", *CLASSES)
    assert (prediction.probabilities > 0.0).all()


def test_two_classes_take_one_logit() -> None:
    options = make_options(QUICK | {"ignore": ("room", "floor")})
    trained = train(table(), "large", options, reporter=Notes())
    assert trained.spec.likelihood.kind == "bernoulli"
    assert trained.spec.architecture.outputs == 1
    prediction = answer(trained.posterior, table(200, seed=9))
    assert (prediction.prediction == (table(200, seed=9).column("size").to_numpy() > 0.3)).mean() > 0.9


NORMAL = np.random.default_rng(0).normal(size=2_000)


@pytest.mark.parametrize(
    ("targets", "cap"),
    [
        (NORMAL, False),
        (NORMAL.clip(max=2.0), True),  # 2 % of the rows
        (NORMAL.clip(max=2.7), False),  # too few
        (NORMAL.round(1).clip(max=1.0), True),  # rounded, and still more at the end than beside it
        (np.repeat(NORMAL, 20), False),  # every row twenty times
        (np.random.default_rng(0).integers(1, 6, 2_000).astype(float), False),  # ratings
        (-NORMAL.clip(min=0.0), True),  # half of the amounts are zero
    ],
)
def test_a_cap_is_a_value_at_the_end_that_is_repeated_as_none_near_it(targets: np.ndarray, cap: bool) -> None:
    assert is_cap(targets) == cap


def test_what_is_found_is_said_with_the_way_to_switch_it_off() -> None:
    notes = Notes()
    limits = present(target_limits(NORMAL.clip(max=2.0), "y", make_options({}), notes.say))
    assert (limits.minimum, limits.maximum) == (-math.inf, 2.0)
    (line,) = notes.lines
    count = int((NORMAL >= 2.0).sum())
    assert line.startswith(f"found a cap: {count} of 2,000 rows have exactly 2, the largest value of 'y'")
    assert line.endswith("--target-maximum inf switches that off")


def test_the_user_has_the_last_word() -> None:
    capped, notes = NORMAL.clip(0.0, 2.0), Notes()
    none = make_options({"target_minimum": -math.inf, "target_maximum": math.inf})
    assert target_limits(capped, "y", none, notes.say) is None
    given = present(target_limits(capped, "y", make_options({"target_minimum": -5, "target_maximum": 7}), notes.say))
    assert (given.minimum, given.maximum) == (-5.0, 7.0)
    assert notes.lines == []
    with pytest.raises(TableError, match=r"row 1: .* lies beyond --target-maximum -9"):
        target_limits(capped, "y", make_options({"target_maximum": -9}), notes.say)


def test_limits_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(OptionError, match="must lie below"):
        target_limits(np.array([1.0, np.nan]), "y", make_options({"target_minimum": 1, "target_maximum": 1}), print)


def test_no_answer_of_a_capped_table_lies_beyond_the_cap(tmp_path: Path) -> None:
    generator, notes = np.random.default_rng(1), Notes()
    a, b = generator.normal(size=(2, 700))
    rent = np.minimum(1.5 + np.sin(2.0 * a) + 0.7 * b + 0.4 * generator.normal(size=700), 2.0)
    small = {"noise": "heteroscedastic", "hidden": (16,), "epochs": 60, "temperature": 0.3}
    rows = pa.table({"a": a[:400], "b": b[:400], "rent": rent[:400]})
    trained = train_quickly(rows, notes, columns={}, members=5, **small)
    assert any(line.startswith("found a cap") for line in notes.lines)
    posterior, fresh = trained.posterior, {"a": a[400:], "b": b[400:]}
    asked = PredictOptions(percentiles=(5.0, 50.0, 95.0), thresholds=(1.999, 2.0), draws=True)
    answer = posterior.predict(fresh, asked)
    for values in (answer.mean, present(answer.percentiles), present(answer.draws)):
        assert values.max() <= 2.0
    low, _, high = present(answer.percentiles).T
    assert (high == 2.0).mean() > 0.3
    assert 0.84 < ((rent[400:] >= low) & (rent[400:] <= high)).mean() < 0.96
    mass, beyond = present(answer.exceedance).T
    assert mass.mean() == pytest.approx((rent[400:] == 2.0).mean(), abs=0.08)
    assert (beyond == 0.0).all()
    for options in (PredictOptions(samples=0), PredictOptions(noise=False)):
        assert posterior.predict(fresh, options).mean.max() <= 2.0
    spec = read_stored(trained.posterior.save(tmp_path, "capped")).spec
    assert present(spec.target.limits).maximum == 2.0
