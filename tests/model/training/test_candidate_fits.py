"""The fits of a search: their scores, and what comes of one that fails, is interrupted or runs on a busy machine."""

from __future__ import annotations

import math
import signal
import time
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import torch

from murho.model.errors import FitError
from murho.model.training import candidates as candidates_module
from murho.model.training.search import CandidateFits
from tests.model.conftest import Notes, make_table, train_quickly

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.model.bbb.fit import Epoch


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
    """What ``model.json`` would say of the training."""
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


@pytest.mark.parametrize("scores", [(math.nan, 1.0), (1.0, math.inf)])
def test_predictions_that_are_not_finite_are_a_failure(
    monkeypatch: pytest.MonkeyPatch, scores: tuple[float, float]
) -> None:
    monkeypatch.setattr(CandidateFits, "row_scores", lambda *_: torch.tensor(scores).unsqueeze(1).expand(2, 7))
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


def test_a_budget_in_seconds_says_that_the_fit_depends_on_the_machine() -> None:
    notes = Notes()
    train_quickly(make_table(rows=90), notes, budget=60.0, epochs=2)
    assert "a budget in seconds: another machine, or a busy one, gives another fit" in notes.lines
