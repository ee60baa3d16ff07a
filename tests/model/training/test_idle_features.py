"""Idle features: a search on few rows does without them where this is clearly better."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from murho.model.bbb.fit_rows import Rows
from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import PredictOptions, Question
from murho.model.tables.schema_inference import columns_from_table
from murho.model.training import candidates as candidates_module
from murho.model.training import idle_features
from murho.model.training.candidates import Candidate
from murho.model.training.idle_features import idle_by_member
from murho.model.training.options import make_options
from murho.model.training.train import Trained, train
from tests.model.conftest import Notes, with_scores
from tests.support import call_murho, write_table

QUICK = {"epochs": 60, "hidden": (12,), "members": 5, "noise": "homoscedastic", "transform": "none"} | {
    "encoding": "standard",
    "skip": False,  # a line alone would tell the idle features
}
IDLE = [f"idle {number}" for number in range(12)]


def _table(rows: int = 100) -> pa.Table:
    """Two features that tell of the target, a category that does too, and twelve that don't."""
    generator = np.random.default_rng(3)
    left, right = generator.normal(size=(2, rows))
    shop = generator.choice(["a", "b"], rows)
    target = 2.0 * left - right + 1.5 * (shop == "a") + 0.3 * generator.normal(size=rows)
    idle = {name: generator.normal(size=rows) for name in IDLE}
    return pa.table({"left": left, "right": right, "shop": shop, **idle, "y": target})


@pytest.fixture(scope="module")
def notes() -> Notes:
    return Notes()


@pytest.fixture(scope="module")
def trained(notes: Notes) -> Trained:
    return train(_table(), "y", make_options(QUICK), reporter=notes)


def test_features_that_tell_nothing_are_left_out_and_the_others_stay(trained: Trained) -> None:
    unread = trained.spec.encoder.unread
    assert set(unread) <= set(IDLE)
    assert len(unread) >= 5
    kept = trained.spec.training["candidates"][-1]
    assert tuple(kept["unread"]) == unread
    assert not {f"{name}{beyond}" for name in unread for beyond in ("", " beyond the training rows")} & {
        *trained.spec.encoder.names
    }


def test_with_many_rows_of_classes_the_temperature_still_rises_along_every_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    temperatures: dict[str, set[float | None]] = {"trial": set(), "full": set(), "settling": set()}

    def scores(candidate: Candidate, stage: str) -> float:
        temperatures[stage].add(candidate.temperature)
        return 1.0 if candidate.unread else 2.0

    monkeypatch.setattr(candidates_module, "FEW_ROWS", 50)
    with_scores(monkeypatch, scores)
    table = _table()
    sizes = pa.array(["large" if value.as_py() > 0.0 else "small" for value in table["y"]])
    options = make_options({"epochs": 30, "hidden": (12,), "members": 5, "skip": False})
    trained = train(table.drop(["y"]).append_column("size", sizes), "size", options, reporter=Notes())
    assert trained.spec.encoder.unread
    assert temperatures["trial"] == temperatures["full"] == {None}


def test_an_answer_depends_on_no_unread_feature_but_names_a_value_unlike_the_training_rows(
    trained: Trained, tmp_path: Path
) -> None:
    posterior = Posterior.load(trained.posterior.save(tmp_path, "idle"))
    table, name = _table(), trained.spec.encoder.unread[0]
    columns = columns_from_table(table.slice(0, 20), posterior.schema)
    before = posterior.predict(columns, PredictOptions())
    within = posterior.predict({**columns, name: columns[name][::-1].copy()}, PredictOptions())
    inside = ~(before.outlier | within.outlier)
    assert inside.sum() > 10
    np.testing.assert_array_equal(before.mean[inside], within.mean[inside])
    far = {**columns, name: np.full(20, 1e3)}
    ((answer, found),) = posterior.predict_questions(far, [Question(slice(0, 20), PredictOptions(), max_warnings=100)])
    assert answer.outlier.all()
    assert {warning.feature for warning in found} == {name}


def test_an_update_says_that_it_learns_nothing_of_an_unread_feature(trained: Trained, tmp_path: Path) -> None:
    trained.posterior.save(tmp_path, "idle")
    table, name = _table(), trained.spec.encoder.unread[0]
    for moved in (name, "left"):
        table = table.set_column(table.column_names.index(moved), moved, pa.array(np.full(100, 50.0)))
    write_table(tmp_path / "new.csv", {each: table.column(each) for each in table.column_names})
    options = ("--checkpoints", tmp_path, "--epochs", 2, "--no-report")
    notes = call_murho("update", "idle", tmp_path / "new.csv", *options).stderr.splitlines()
    assert any(f"{name!r} is unlike" in note and "the update learns nothing of it" in note for note in notes)
    assert any("'left' is unlike" in note and "the epistemic uncertainty there shrinks" in note for note in notes)


@pytest.mark.parametrize(
    ("options", "rows_a_feature"), [({"idle_features": "keep"}, 50), ({}, 5), ({"quick": True}, 50)]
)
def test_all_features_are_read_where_rows_are_many_or_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], rows_a_feature: int
) -> None:
    monkeypatch.setattr(idle_features, "ROWS_A_FEATURE", rows_a_feature)
    trained = train(_table(), "y", make_options(QUICK | {"epochs": 4} | options), reporter=Notes())
    assert trained.spec.encoder.unread == ()
    assert {tuple(one["unread"]) for one in trained.spec.training["candidates"]} == {()}


def test_no_member_is_chosen_by_the_rows_that_it_judges() -> None:
    folds = torch.arange(20).remainder(5).expand(2, -1)
    rows = Rows(torch.zeros(20, 1), torch.zeros(20), folds)
    noise = torch.linspace(-1.0, 1.0, 20).double()
    importance = {"useful": noise + 5.0, "idle": noise - noise.mean()}
    assert idle_by_member(importance, rows, 10, 0.5) == [{"idle"}] * 10
    importance["idle"] = torch.where(folds[0] == 3, 100.0, importance["idle"])  # so says fold 3 alone
    assert [member for member, idle in enumerate(idle_by_member(importance, rows, 10, 0.5)) if idle] == [3, 8]


def test_judged_forward_a_member_is_chosen_by_rows_before_its_own() -> None:
    rows = Rows(torch.zeros(20, 1), torch.zeros(20), torch.arange(20).div(4, rounding_mode="floor")[None], forward=True)
    importance = {"early": torch.tensor([5.0, 6.0] * 4 + [0.0] * 12), "late": torch.tensor([0.0] * 12 + [5.0, 6.0] * 4)}
    assert idle_by_member(importance, rows, 5, 0.5) == [set(), {"late"}, {"late"}, {"late"}, set()]


def test_looking_for_idle_features_takes_nothing_from_the_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = list[float]()
    monkeypatch.setattr(candidates_module.SearchPlan, "spend", lambda _, work, *__: spent.append(work))
    tried = train(_table(), "y", make_options(QUICK | {"epochs": 30}), reporter=Notes()).spec.training["candidates"]
    assert any(one["unread"] for one in tried)
    assert len(spent) == len(tried)


@pytest.mark.parametrize(("better", "kept"), [(0.03, False), (0.08, True)])
def test_a_small_gain_is_not_enough(monkeypatch: pytest.MonkeyPatch, better: float, kept: bool) -> None:
    with_scores(monkeypatch, lambda candidate, _: 2.0 * (1.0 - better if "idle" in str(candidate) else 1.0))
    spec = train(_table(), "y", make_options(QUICK | {"epochs": 30}), reporter=Notes()).spec
    tried = [one["unread"] for one in spec.training["candidates"]]
    assert any(tried)
    assert bool(tried[-1]) == kept
