"""One fit of a training is restored, resumed or started; a failed fit is not repeated."""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import torch

from murho.model.errors import FitError
from murho.model.training.resuming import ScoredFit, fit_or_resume
from murho.model.training.snapshots import Snapshots
from tests.model.conftest import Notes, make_table, small_options, small_rows, train_quickly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from murho.model.fitting.fit_types import Epoch, Fit


def _run(
    snapshots: Snapshots, notes: Notes, scores: tuple[float, float] = (1.5, 2.5), at_scoring: Callable[[], object] = int
) -> ScoredFit:
    rows = small_rows()

    def score(_: Fit) -> torch.Tensor:
        at_scoring()
        return torch.tensor(scores).double().unsqueeze(1).expand(2, 7)

    return fit_or_resume(
        snapshots,
        "a",
        rows,
        rows,
        small_options(),
        score,
        title="fit a",
        reporter=notes,
        device=torch.device("cpu"),
    )


def test_a_fit_is_made_once(tmp_path: Path) -> None:
    notes = Notes()
    with Snapshots(tmp_path) as snapshots:
        snapshots.begin({}, notes.say)
        first, second = _run(snapshots, notes), _run(snapshots, notes)
    assert notes.titles == ["fit a"]
    assert torch.equal(first.fit.network.mu, second.fit.network.mu)
    assert (first.nll, first.crps, first.seconds) == (second.nll, second.crps, second.seconds)


@pytest.mark.usefixtures("heed_interrupts")
def test_an_interruption_while_a_fit_is_scored_is_noted_and_the_fit_kept(tmp_path: Path) -> None:
    notes = Notes()
    with Snapshots(tmp_path) as snapshots:
        snapshots.begin({}, notes.say)
        scored = _run(snapshots, notes, at_scoring=lambda: signal.raise_signal(signal.SIGINT))
        assert scored.interrupted
        assert scored.fit.stopped == "epochs"
        assert not _run(snapshots, notes).interrupted
    assert notes.titles == ["fit a"]


def test_without_a_place_nothing_is_kept() -> None:
    notes = Notes()
    _run(Snapshots(), notes)
    _run(Snapshots(), notes)
    assert notes.titles == ["fit a"] * 2


@pytest.mark.parametrize("scores", [(math.nan, 1.0), (1.0, math.inf)])
def test_predictions_that_are_not_finite_are_a_failure(scores: tuple[float, float]) -> None:
    snapshots = Snapshots()
    with pytest.raises(FitError, match="predictions of the fit are not finite"):
        _run(snapshots, Notes(), scores)
    assert snapshots.failure("a") is not None


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
    with pytest.raises(FitError, match=r"in epoch 2 \(noise\.rho\)"):
        _search(_Fails(lambda _: True))
