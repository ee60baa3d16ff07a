"""The search: the candidates it tries, the one it keeps, options fixed by the user, and interruptions."""

import math
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute
import pytest
import torch

from murho.model.bbb.fit import Epoch
from murho.model.errors import FitError
from murho.model.training import candidates as candidates_module
from murho.model.training.candidate_fits import CandidateFits
from murho.model.training.candidates import FULL, LEAST, TRIAL, Candidate, SearchPlan, has_few_rows
from murho.model.training.options import make_options
from murho.model.training.tasks import next_temperature
from murho.model.training.train import Trained, train
from tests.model.conftest import (
    Notes,
    make_table,
    present,
    train_quickly,
    with_few_rows_below,
    with_losses_of_judges,
    with_scores,
)
from tests.model.rooms import rooms_table

QUICK = {"epochs": 12, "hidden": (6,), "members": 2}


def searched(table: pa.Table, target: str = "rent", **changes: object) -> Trained:
    return train(table, target, make_options(QUICK | changes), reporter=Notes())


def _tried(found: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [tuple(one[name] for name in ("noise", "transform", "encoding", "temperature")) for one in found]


def test_every_open_choice_is_tried_and_what_has_settled_is_kept() -> None:
    spec = searched(make_table(rows=240)).spec
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


def test_from_many_rows_on_the_temperature_is_found_along_the_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    with_few_rows_below(monkeypatch, 100)
    notes = Notes()
    spec = train(make_table(), "rent", make_options(QUICK), reporter=notes).spec
    tried = spec.training["candidates"]
    in_order = [one["stage"] for one in tried]
    assert in_order == ["trial"] * (len(tried) - 2) + ["full", "settling"]
    temperatures = [one["temperature"] for one in tried]
    assert all(0.01 <= temperature <= 1.0 for temperature in temperatures)
    assert temperatures[-1] == temperatures[-2]
    assert ["temperature" in title for title in notes.titles] == [False] * (len(tried) - 1) + [True]


def test_what_the_user_has_fixed_is_fitted_fully_and_settles() -> None:
    fixed: dict[str, Any] = {"noise": "mixture", "transform": "log", "encoding": "piecewise", "temperature": 1.0}
    spec = searched(make_table(), **fixed).spec
    candidates = spec.training["candidates"]
    assert [one["stage"] for one in candidates] == ["full", "settling"]
    assert _tried(candidates) == [("mixture", "log", "piecewise", 1.0)] * 2


def test_a_logarithmic_target_is_recognised() -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-2.0, 2.0, 400)
    table = pa.table({"x": x, "rent": np.exp(3.0 * x + 0.3 * generator.normal(size=400))})
    spec = searched(table, hidden=(16,), noise="heteroscedastic", encoding="standard", epochs=160).spec
    assert spec.target.transform.kind == "log"


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


def test_a_budget_by_the_clock_counts_waiting_and_keeps_time_for_scoring() -> None:
    began = time.monotonic()
    plan = SearchPlan([FULL, FULL], make_options({"budget": 3600.0}), 1_000, few=False, began=began)
    assert plan.by_clock
    plan.spend(10.0, 8.0)
    assert plan.begin(FULL, 1, "", began + 600.0)[1] == pytest.approx(1500.0 - 8.0)
    assert plan.begin(FULL, 2, "", began + 600.0)[1] == pytest.approx(3000.0 - 8.0)
    assert not plan.late
    late = SearchPlan([FULL], make_options({"budget": 10.0}), 1_000, few=False, began=began - 11.0)
    assert late.late
    assert late.begin(FULL, 1, "", began)[1] == LEAST


@pytest.mark.parametrize(
    ("temperature", "full", "expected"),
    [
        (0.1, 1.0, 0.3),  # no better than the trial: by heart
        (0.1, 0.95, 0.1),
        (0.1, 0.8, 0.03),  # much better: trials had only begun
        (1.0, 1.2, 1.0),
        (0.03, 0.5, 0.03),
    ],
)
def test_it_rises_where_a_full_fit_gains_nothing_and_falls_where_it_gains_much(
    temperature: float, full: float, expected: float
) -> None:
    assert next_temperature(temperature, 1.0, full) == expected


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


@pytest.mark.parametrize(
    ("log_alone", "log_with_bins", "tried_again", "transform"),
    [(0.04, -3.0, True, "log"), (0.04, 3.0, True, "none"), (1.0, -3.0, False, "none")],
)
def test_a_choice_made_by_a_narrow_margin_is_made_again_when_the_others_are_known(
    monkeypatch: pytest.MonkeyPatch, log_alone: float, log_with_bins: float, tried_again: bool, transform: str
) -> None:
    def nll(candidate: Candidate, _: str) -> float:
        log, bins = candidate.transform == "log", candidate.encoding == "piecewise"
        return (log_with_bins if bins else log_alone) if log else (-2.0 if bins else 0.0)

    with_few_rows_below(monkeypatch, 100)
    with_scores(monkeypatch, nll)
    spec = searched(make_table(), noise="heteroscedastic", idle_features="keep").spec
    trials = [one for one in spec.training["candidates"] if one["stage"] == "trial"]
    assert [(one["transform"], one["encoding"]) for one in trials] == [
        ("none", "standard"),
        ("log", "standard"),
        ("none", "piecewise"),
        *([("log", "piecewise")] if tried_again else []),
    ]
    assert spec.target.transform.kind == transform


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("better", ["full", "settling"])
def test_what_has_settled_is_kept_and_of_classes_the_better_of_it_and_the_full_fit(
    monkeypatch: pytest.MonkeyPatch, better: str, classes: bool
) -> None:
    kept = with_scores(monkeypatch, lambda _, stage: {"trial": 1.5, better: -1.0}.get(stage, 1.0))
    if classes:
        trained = searched(rooms_table(rows=1_300), "room", epochs=2, encoding="standard", whiten="no")
    else:
        trained = searched(make_table(), transform="none", noise="heteroscedastic", temperature=0.3)
    name, outcome = "layers.0.bias.mu", present(kept[better if classes else "settling"])
    torch.testing.assert_close(trained.posterior.tensors[name], outcome.network.named_tensors()[name])


@pytest.mark.parametrize(
    ("binned", "plain", "kept"), [(0.3, 0.1, "standard"), (0.1, 0.3, "piecewise"), (0.3, 0.3, "mixed")]
)
def test_all_members_read_alike_where_one_kind_is_better_alone(
    monkeypatch: pytest.MonkeyPatch, binned: float, plain: float, kept: str
) -> None:
    with_losses_of_judges(monkeypatch, binned, plain, 0.2)
    trained = searched(rooms_table(rows=120), "room", epochs=4, members=10, temperature=0.3)
    tried = [(one["stage"], one["encoding"]) for one in trained.spec.training["candidates"]]
    again = [] if kept == "mixed" else [("full", kept)]
    assert tried == [("full", "mixed"), *again, ("settling", kept)]
    assert bool(trained.spec.architecture.unread) == (kept == "mixed")


@pytest.mark.parametrize(
    ("few_rows", "apart", "tried"), [(100, 0.05, {False, True}), (100, 0.5, {False}), (1000, 0.05, {False})]
)
def test_whitening_is_tried_where_a_difference_is_well_hidden_and_rows_are_many(
    monkeypatch: pytest.MonkeyPatch, few_rows: int, apart: float, tried: set[bool]
) -> None:
    with_few_rows_below(monkeypatch, few_rows)
    load, difference = np.random.default_rng(0).normal(size=(2, 300))
    table = pa.table({"left": load, "right": load + apart * difference, "wear": difference})
    spec = searched(table, "wear", noise="homoscedastic", transform="none", encoding="standard", skip=False).spec
    candidates = spec.training["candidates"]
    assert {one["whitened"] for one in candidates} == tried
    assert (spec.encoder.whitening is not None) == candidates[-1]["whitened"] == (True in tried)


def test_classes_of_few_rows_start_from_the_mixed_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    table = rooms_table(rows=120)

    def encodings(given: pa.Table, **options: object) -> set[object]:
        spec = searched(given, "room", **({"epochs": 2, "members": 10} | options)).spec
        return {one["encoding"] for one in spec.training["candidates"]}

    with_losses_of_judges(monkeypatch, 0.3, 0.3, 0.2)
    assert encodings(table) == {"mixed"}
    assert encodings(table, encoding="standard") == {"standard"}
    assert encodings(table, members=2) == {"standard", "piecewise"}  # one judge a row
    assert encodings(table, quick=True) == {"standard"}
    assert encodings(table.select(["district", "lift", "room"])) == {"standard"}  # no number, no bins


class _Fails(Notes):
    """Stands for fits that become non-finite, told by the titles up to theirs."""

    def __init__(self, which: Callable[[list[str]], bool]) -> None:
        super().__init__()
        self.which = which

    def epoch(self, epoch: Epoch) -> None:
        super().epoch(epoch)
        if epoch.number == 2 and self.which(self.titles):
            raise FitError("the fit became non-finite in epoch 2 (noise.rho)")


def _search(notes: Notes) -> dict[str, Any]:
    """Return what ``model.json`` would say of the training."""
    trained = train_quickly(make_table(rows=90), notes, members=2, noise="auto")
    training: dict[str, Any] = orjson.loads(orjson.dumps(trained.spec.training))
    return training


@pytest.mark.parametrize("failing", [1, 2])
def test_the_search_goes_on_without_a_candidate_that_fails(failing: int) -> None:
    notes = _Fails(lambda titles: len(titles) == failing)
    training = _search(notes)
    candidates = training["candidates"]
    assert len(candidates) == len(notes.titles) > failing
    assert [one["nll"] is None for one in candidates] == [number == failing for number in range(1, len(candidates) + 1)]
    assert candidates[failing - 1]["crps"] is None
    assert any("passed over: the fit became non-finite in epoch 2" in line for line in notes.lines)


def test_where_every_candidate_fails_the_training_does() -> None:
    with pytest.raises(FitError, match=r"in epoch 2 \(noise\.rho\)$"):
        _search(_Fails(lambda _: True))


def test_predictions_that_are_not_finite_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CandidateFits, "row_scores", lambda *_: torch.tensor([[1.0], [math.inf]]).expand(2, 7))
    with pytest.raises(FitError, match="predictions of the fit are not finite"):
        _search(Notes())


@pytest.mark.usefixtures("heed_interrupts")
def test_an_interruption_while_a_fit_is_scored_ends_the_search_and_keeps_the_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*arguments: Any) -> torch.Tensor:
        signal.raise_signal(signal.SIGINT)
        return row_scores(*arguments)

    row_scores = CandidateFits.row_scores
    monkeypatch.setattr(CandidateFits, "row_scores", interrupted)
    notes = Notes()
    training = _search(notes)
    assert (training["interrupted"], training["stopped"]) == (True, "epochs")
    assert len(notes.titles) == 1


class _Slow(Notes):
    """A busy machine: every epoch takes longer."""

    def epoch(self, epoch: Epoch) -> None:
        super().epoch(epoch)
        time.sleep(0.01)


def test_a_slow_machine_changes_no_bit_of_a_fit_in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates_module, "default_budget", lambda _: 0.08)
    changes: dict[str, Any] = {"members": 3, "noise": "auto", "temperature": None, "epochs": 400}
    slow = _Slow()
    quick, later = (train_quickly(make_table(rows=90), notes, **changes) for notes in (Notes(), slow))
    assert quick.spec.training["stopped"] == "budget"  # the schedule was sped up
    for name, tensor in quick.posterior.tensors.items():
        assert torch.equal(tensor, later.posterior.tensors[name]), name
    assert quick.spec.metrics == later.spec.metrics
    assert not any("a budget in seconds" in line for line in slow.lines)


@pytest.mark.parametrize(("trial", "settled", "kept"), [(2.0, [1.0], 0), (0.5, [1.0, 0.8], 1), (0.5, [1.0, 1.2], 0)])
def test_a_trial_that_is_better_than_the_full_fit_is_settled_too(
    monkeypatch: pytest.MonkeyPatch, trial: float, settled: list[float], kept: int
) -> None:
    scores, settlings = iter(settled), list[torch.Tensor]()
    with_scores(
        monkeypatch, lambda _, stage: next(scores) if stage == "settling" else trial if stage == "trial" else 1.0
    )
    fit = CandidateFits.fit

    def record_fit(*arguments: Any) -> Any:
        attempt, outcome = fit(*arguments)
        if attempt.stage == "settling":
            settlings.append(present(outcome).network.named_tensors()["layers.0.bias.mu"])
        return attempt, outcome

    monkeypatch.setattr(CandidateFits, "fit", record_fit)
    trained = searched(make_table(), transform="none", noise="heteroscedastic", temperature=0.3)
    assert len(settlings) == len(settled)
    torch.testing.assert_close(trained.posterior.tensors["layers.0.bias.mu"], settlings[kept])


@pytest.mark.parametrize(
    ("rows", "features", "few"),
    [
        (999, 8, True),
        (1_000, 8, False),
        (2_500, 60, True),
        (3_000, 60, False),
        (10_000, 784, False),
        (900, 5_000, True),
    ],
)
def test_rows_are_few_for_many_features(rows: int, features: int, *, few: bool) -> None:
    assert has_few_rows(rows, features) == few


def test_a_fit_that_is_added_takes_nothing_from_the_others() -> None:
    def budget_of_full(added: int, budget: float | None = None) -> float:
        plan = SearchPlan([TRIAL, FULL], make_options({"budget": budget}), 500, few=True, began=time.monotonic())
        for _ in range(added):
            plan.add(TRIAL)
        return plan.begin(FULL, 1, "", time.monotonic())[1]

    assert budget_of_full(3) == pytest.approx(budget_of_full(0))
    assert budget_of_full(3, 100.0) < 0.8 * budget_of_full(0, 100.0)  # the clock gives no more


@pytest.mark.parametrize(
    ("full", "longer", "better"),
    [
        (3.0, [2.0, 1.0, 1.5], False),  # ends when a fit is no better
        (3.0, [2.0, 1.0, 0.5], True),  # ends after three
        (3.0, [(2.0, 1.1)], False),  # only the NLL is better: spikes on the few values of a rounded target
        (3.95, [], False),  # hardly better than the trial: more steps would not pay
    ],
)
def test_a_fit_goes_on_as_long_as_that_pays(
    monkeypatch: pytest.MonkeyPatch, full: float, longer: list[float | tuple[float, float]], *, better: bool
) -> None:
    monkeypatch.setattr(candidates_module, "STEPS", 40)
    scores, notes = iter(longer), Notes()

    def scores_of(_: Candidate, stage: str) -> float | tuple[float, float]:
        return next(scores) if stage == "longer" else 4.0 if stage == "trial" else full

    kept = with_scores(monkeypatch, scores_of)
    options = {"hidden": (6,), "members": 2, "noise": "homoscedastic", "transform": "none"}
    trained = train(make_table(), "rent", make_options(options), reporter=notes)
    stages = [one["stage"] for one in trained.spec.training["candidates"]]
    assert stages.count("longer") == len(longer)
    last = present(kept[stages[-1]]).network.named_tensors()["layers.0.bias.mu"]
    assert torch.equal(trained.posterior.tensors["layers.0.bias.mu"], last) == (better or not longer)
    assert any("--budget" in line and "still improving" in line for line in notes.lines) == better
