"""The search: the candidates it tries, the one it keeps, and options fixed by the user."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
import torch

from murho.model.likelihoods.registry import NOISE_KINDS
from murho.model.networks.read_inputs import inputs_read
from murho.model.training import search
from murho.model.training.candidates import Attempt, Candidate
from murho.model.training.options import make_options
from murho.model.training.quick import default_budget
from murho.model.training.resuming import ScoredFit, fit_or_resume
from murho.model.training.search import FEW_ROWS, warm_up_share
from murho.model.training.train import train
from tests.model.conftest import Notes, make_table, train_quickly
from tests.model.rooms import rooms_table

if TYPE_CHECKING:
    from murho.model.fitting.fit_types import Epoch, Fit

QUICK = {"epochs": 12, "hidden": (6,), "members": 2}


def _scores(nll: float, rows: int = 100) -> torch.Tensor:
    """The same NLL in every row, and a CRPS of 1."""
    return torch.tensor([nll, 1.0]).double().unsqueeze(1).expand(2, rows)


def _tried(found: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [tuple(one[name] for name in ("noise", "transform", "encoding", "temperature")) for one in found]


def test_every_open_choice_is_tried_and_what_has_settled_is_kept() -> None:
    spec = train(make_table(rows=240), "rent", make_options(QUICK), reporter=Notes()).spec
    candidates = spec.training["candidates"]
    tried = _tried(candidates)
    assert tried[0] == ("heteroscedastic", "none", "standard", 0.3)
    assert {one[0] for one in tried} == {"heteroscedastic", "mixture"}
    assert {one[1] for one in tried} == {"none", "log"}
    assert {one[2] for one in tried} == {"standard", "piecewise"}
    assert {one[3] for one in tried} > {0.3, 0.1}
    settled = [one for one, facts in zip(tried, candidates, strict=True) if facts["stage"] == "settling"]
    assert len({one[:3] for one in settled}) == 1
    assert (spec.likelihood.kind, spec.target.transform.kind, spec.encoder.encoding) == settled[0][:3]
    assert spec.training["temperature"] in {one[3] for one in settled}


def test_a_small_table_is_tried_with_homoscedastic_noise_instead_of_a_mixture() -> None:
    candidates = train(make_table(), "rent", make_options(QUICK), reporter=Notes()).spec.training["candidates"]
    assert {one["noise"] for one in candidates} == {"heteroscedastic", "homoscedastic"}


def test_the_default_budget_grows_with_the_table() -> None:
    assert default_budget(100) == default_budget(1_000) == 48.0
    assert 48.0 < default_budget(5_000) < default_budget(10_000) == default_budget(50_000) == 290.0
    assert default_budget(10**7) == 900.0


def test_the_prior_comes_in_sooner_where_rows_are_many() -> None:
    assert warm_up_share(FEW_ROWS - 1) == 0.7
    assert warm_up_share(FEW_ROWS) == warm_up_share(10**6) == 0.2


def test_from_many_rows_on_the_temperature_is_found_along_the_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FEW_ROWS", 100)
    notes = Notes()
    spec = train(make_table(), "rent", make_options(QUICK), reporter=notes).spec
    tried = spec.training["candidates"]
    stages = [one["stage"] for one in tried]
    assert stages == ["trial"] * (len(tried) - 2) + ["full", "settling"]
    temperatures = [one["temperature"] for one in tried]
    assert all(0.01 <= temperature <= 1.0 for temperature in temperatures)
    assert temperatures[-1] == temperatures[-2]
    assert ["temperature" in title for title in notes.titles] == [False] * (len(tried) - 1) + [True]


@pytest.mark.parametrize(("apart", "whitened"), [(0.05, True), (0.5, False)])
def test_whitening_that_is_asked_for_is_done_where_there_is_something_to_whiten(apart: float, whitened: bool) -> None:
    load, difference = np.random.default_rng(0).normal(size=(2, 200))
    table = pa.table({"left": load, "right": load + apart * difference, "wear": difference})
    fixed = {"noise": "homoscedastic", "transform": "none", "encoding": "standard", "temperature": 1.0}
    spec = train(table, "wear", make_options(QUICK | fixed | {"whiten": "yes"}), reporter=Notes()).spec
    assert {one["whitened"] for one in spec.training["candidates"]} == {whitened}
    assert (spec.encoder.whitening is not None) == whitened


@pytest.mark.parametrize(
    ("log_alone", "log_with_bins", "tried_again", "transform"),
    [(0.04, -3.0, True, "log"), (0.04, 3.0, True, "none"), (1.0, -3.0, False, "none")],
)
def test_a_choice_made_by_a_narrow_margin_is_made_again_when_the_others_are_known(
    monkeypatch: pytest.MonkeyPatch, log_alone: float, log_with_bins: float, tried_again: bool, transform: str
) -> None:
    def scored(*arguments: Any, title: str, **others: Any) -> ScoredFit:
        found = fit_or_resume(*arguments, title=title, **others)
        log, bins = "transform log" in title, "piecewise" in title
        nll = (log_with_bins if bins else log_alone) if log else (-2.0 if bins else 0.0)
        return replace(found, rows=_scores(nll))

    monkeypatch.setattr(search, "FEW_ROWS", 100)
    monkeypatch.setattr(search, "fit_or_resume", scored)
    options = make_options(QUICK | {"noise": "heteroscedastic"})
    spec = train(make_table(), "rent", options, reporter=Notes()).spec
    trials = [one for one in spec.training["candidates"] if one["stage"] == "trial"]
    assert [(one["transform"], one["encoding"]) for one in trials] == [
        ("none", "standard"),
        ("log", "standard"),
        ("none", "piecewise"),
        *([("log", "piecewise")] if tried_again else []),
    ]
    assert spec.target.transform.kind == transform


@pytest.mark.parametrize("better", ["full", "settling"])
def test_what_has_settled_is_kept_however_well_the_fits_before_it_score(
    monkeypatch: pytest.MonkeyPatch, better: str
) -> None:
    def scored(*arguments: Any, title: str, **others: Any) -> ScoredFit:
        stage = title.split(": ")[0] if ": " in title else "full"
        assert (others["initial"] is not None) == (stage == "settling")
        found = fit_or_resume(*arguments, title=title, **others)
        kept[stage] = found.fit
        return replace(found, rows=_scores({"trial": -1.02, better: -1.0}.get(stage, 1.0)))

    kept: dict[str, Fit] = {}
    monkeypatch.setattr(search, "fit_or_resume", scored)
    options = make_options(QUICK | {"members": 10, "transform": "none", "noise": "heteroscedastic"})
    trained = train(make_table(), "rent", options, reporter=Notes())
    assert trained.spec.architecture.members == 10
    torch.testing.assert_close(
        trained.tensors["layers.0.bias.mu"],
        kept["settling"].network.named_tensors()["layers.0.bias.mu"].detach(),
    )


def test_on_few_rows_trials_have_all_members(monkeypatch: pytest.MonkeyPatch) -> None:
    def scored(*arguments: Any, **others: Any) -> ScoredFit:
        found = fit_or_resume(*arguments, **others)
        members.append(len(found.fit.network.mu))
        return found

    members: list[int] = []
    monkeypatch.setattr(search, "fit_or_resume", scored)
    options = make_options(QUICK | {"members": 10, "transform": "none", "encoding": "standard", "temperature": 0.3})
    train(make_table(), "rent", options, reporter=Notes())
    assert members == [10] * 4  # two trials, the full fit and the settling fit
    monkeypatch.setattr(search, "FEW_ROWS", 100)
    members.clear()
    train(make_table(), "rent", options, reporter=Notes())
    assert members == [5, 5, 10, 10]


def test_what_the_user_has_fixed_is_fitted_fully_and_settles() -> None:
    fixed = {"noise": "mixture", "transform": "log", "encoding": "piecewise", "temperature": 1.0}
    spec = train(make_table(), "rent", make_options(QUICK | fixed), reporter=Notes()).spec
    candidates = spec.training["candidates"]
    assert [one["stage"] for one in candidates] == ["full", "settling"]
    assert _tried(candidates) == [("mixture", "log", "piecewise", 1.0)] * 2


def test_a_target_with_negative_values_is_not_offered_the_logarithm() -> None:
    table = make_table()
    shifted = pa.compute.subtract(table["rent"], 800.0)
    table = table.set_column(table.column_names.index("rent"), "rent", shifted)
    candidates = train(table, "rent", make_options(QUICK), reporter=Notes()).spec.training["candidates"]
    assert {one["transform"] for one in candidates} == {"none"}


def test_trials_are_short_and_each_fit_is_said() -> None:
    notes = Notes()
    train(make_table(), "rent", make_options(QUICK | {"epochs": 40}), reporter=notes)
    assert notes.titles[0].startswith("trial: ")
    scored = [line for line in notes.lines if "validation NLL" in line and "CRPS" in line]
    assert len(scored) == len(notes.titles)
    assert [line.split(": ")[0] for line in scored] == [title.split(": ")[0] for title in notes.titles]
    assert notes.titles[-1].startswith("settling: ")
    full = next(title for title in notes.titles if title.split(": ")[0] not in ("trial", "settling"))
    assert full.split(" ")[0] in NOISE_KINDS


def test_a_logarithmic_target_is_recognised() -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-2.0, 2.0, 400)
    table = pa.table({"x": x, "rent": np.exp(3.0 * x + 0.3 * generator.normal(size=400))})
    options = make_options(
        {"hidden": (16,), "members": 2, "noise": "heteroscedastic", "encoding": "standard", "epochs": 160}
    )
    spec = train(table, "rent", options, reporter=Notes()).spec
    assert spec.target.transform.kind == "log"


@pytest.mark.parametrize(
    ("few_rows", "apart", "tried"), [(100, 0.05, {False, True}), (100, 0.5, {False}), (1000, 0.05, {False})]
)
def test_whitening_is_tried_where_a_difference_is_well_hidden_and_rows_are_many(
    monkeypatch: pytest.MonkeyPatch, few_rows: int, apart: float, tried: set[bool]
) -> None:
    monkeypatch.setattr(search, "FEW_ROWS", few_rows)
    load, difference = np.random.default_rng(0).normal(size=(2, 300))
    table = pa.table({"left": load, "right": load + apart * difference, "wear": difference})
    options = make_options(QUICK | {"noise": "homoscedastic", "transform": "none", "encoding": "standard"})
    spec = train(table, "wear", options, reporter=Notes()).spec
    candidates = spec.training["candidates"]
    assert {one["whitened"] for one in candidates} == tried
    assert (spec.encoder.whitening is not None) == candidates[-1]["whitened"] == (True in tried)


def test_the_loss_weighs_nll_and_crps_alike_and_does_not_depend_on_the_unit() -> None:
    candidate = Candidate("mixture", "none", "standard", False, (8,), 1.0)
    loss = Attempt(candidate, "full", nll=2.0, crps=0.5, seconds=1.0).loss
    in_cents = Attempt(candidate, "full", nll=2.0 + math.log(100.0), crps=50.0, seconds=1.0).loss
    assert in_cents - loss == pytest.approx(math.log(100.0))
    assert str(candidate) == "mixture noise, transform none, standard encoding, hidden 8, temperature 1"
    whitened = replace(candidate, whitened=True, temperature=None)
    assert str(whitened) == "mixture noise, transform none, standard encoding, whitened, hidden 8"


def test_an_interruption_early_in_the_full_fit_keeps_the_best_trial() -> None:
    class Impatient(Notes):
        def epoch(self, epoch: Epoch) -> None:
            super().epoch(epoch)
            if not self.titles[-1].startswith("trial: "):
                raise KeyboardInterrupt

    chosen = {"hidden": (6,), "members": 2, "epochs": 400, "noise": "heteroscedastic", "budget": 3600.0}
    trained = train(make_table(), "rent", make_options(chosen), reporter=Impatient())
    assert trained.spec.training["interrupted"]
    assert [one["stage"] for one in trained.spec.training["candidates"]][-2:] == ["trial", "full"]
    assert trained.spec.training["epochs"] == 100


def test_an_interruption_during_a_trial_keeps_the_best_so_far() -> None:
    class Impatient(Notes):
        def epoch(self, epoch: Epoch) -> None:
            super().epoch(epoch)
            if len(self.titles) == 2:
                raise KeyboardInterrupt

    trained = train(make_table(), "rent", make_options(QUICK), reporter=Impatient())
    assert trained.spec.training["interrupted"]
    assert len(trained.spec.training["candidates"]) == 2
    assert trained.posterior.architecture.hidden == (6,)


def test_stages_of_a_search_count_up_and_their_shares_add_up() -> None:
    notes = Notes()
    train_quickly(make_table(), notes, noise="auto", temperature=None, members=2)
    fits, last = notes.stages[:-1], notes.stages[-1]
    assert [stage.number for stage in fits] == list(range(1, len(fits) + 1))
    assert all(stage.number <= stage.fits for stage in fits)
    assert fits[0].done == 0.0
    assert [stage.done for stage in notes.stages] == sorted(stage.done for stage in notes.stages)
    assert all(stage.done + stage.share <= 1.0 for stage in notes.stages)
    assert last.title == "calibrating and scoring on held-out rows"


def test_classes_of_few_rows_start_from_the_mixed_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    table = rooms_table(rows=120)
    quick = {"epochs": 2, "hidden": (6,), "members": 10}

    def encodings(given: pa.Table, **options: Any) -> set[object]:
        spec = train(given, "room", make_options(quick | options), reporter=Notes()).spec
        return {one["encoding"] for one in spec.training["candidates"]}

    monkeypatch.setattr(search, "scores_of_judges", lambda *_, **__: torch.tensor([0.3, 0.3, 0.2]))
    assert encodings(table) == {"mixed"}
    assert encodings(table, encoding="standard") == {"standard"}
    assert encodings(table, members=2) == {"standard", "piecewise"}  # one judge a row
    assert encodings(table, quick=True) == {"standard"}
    assert encodings(table.select(["district", "lift", "room"])) == {"standard"}  # no number, no bins


def test_from_many_rows_on_classes_try_one_encoding_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FEW_ROWS", 100)
    options = make_options({"epochs": 2, "hidden": (6,), "members": 10})
    spec = train(rooms_table(rows=200), "room", options, reporter=Notes()).spec
    assert {one["encoding"] for one in spec.training["candidates"]} == {"standard", "piecewise"}


@pytest.mark.parametrize(
    ("binned", "plain", "kept"), [(0.3, 0.1, "standard"), (0.1, 0.3, "piecewise"), (0.3, 0.3, "mixed")]
)
def test_all_members_read_alike_where_one_kind_is_better_alone(
    monkeypatch: pytest.MonkeyPatch, binned: float, plain: float, kept: str
) -> None:
    monkeypatch.setattr(search, "scores_of_judges", lambda *_, **__: torch.tensor([binned, plain, 0.2]))
    options = make_options({"epochs": 4, "hidden": (6,), "members": 10, "temperature": 0.3})
    trained = train(rooms_table(rows=120), "room", options, reporter=Notes())
    tried = [(one["stage"], one["encoding"]) for one in trained.spec.training["candidates"]]
    again = [] if kept == "mixed" else [("full", kept)]
    assert tried == [("full", "mixed"), *again, ("settling", kept)]
    assert (inputs_read(trained.tensors) is None) == (kept != "mixed")


def test_a_mixed_encoding_that_was_asked_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "scores_of_judges", lambda *_, **__: torch.tensor([0.1, 0.3, 0.2]))
    options = make_options(
        {"epochs": 4, "hidden": (6,), "members": 10, "temperature": 0.3, "encoding": "mixed"},
    )
    spec = train(rooms_table(rows=120), "room", options, reporter=Notes()).spec
    assert {one["encoding"] for one in spec.training["candidates"]} == {"mixed"}
