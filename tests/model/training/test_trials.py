"""The trials of a search: their members, and a narrow choice that is made again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from murho.model.training import candidates as candidates_module
from murho.model.training.options import make_options
from murho.model.training.search import CandidateFits
from murho.model.training.train import train
from tests.model.conftest import Notes, make_table, present, rescored

if TYPE_CHECKING:
    from murho.model.bbb.fit import Fit
    from murho.model.training.candidates import Attempt, Candidate

QUICK = {"epochs": 12, "hidden": (6,), "members": 2}


@pytest.mark.parametrize(
    ("log_alone", "log_with_bins", "tried_again", "transform"),
    [(0.04, -3.0, True, "log"), (0.04, 3.0, True, "none"), (1.0, -3.0, False, "none")],
)
def test_a_choice_made_by_a_narrow_margin_is_made_again_when_the_others_are_known(
    monkeypatch: pytest.MonkeyPatch, log_alone: float, log_with_bins: float, tried_again: bool, transform: str
) -> None:
    def scored(fits: CandidateFits, candidate: Candidate, *rest: Any) -> tuple[Attempt, Fit | None]:
        attempt, outcome = fit(fits, candidate, *rest)
        log, bins = candidate.transform == "log", candidate.encoding == "piecewise"
        nll = (log_with_bins if bins else log_alone) if log else (-2.0 if bins else 0.0)
        return rescored(attempt, nll), outcome

    fit = CandidateFits.fit
    monkeypatch.setattr(candidates_module, "FEW_ROWS", 100)
    monkeypatch.setattr(CandidateFits, "fit", scored)
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


def test_on_few_rows_trials_have_all_members(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(*arguments: Any) -> tuple[Attempt, Fit | None]:
        attempt, outcome = fit(*arguments)
        members.append(len(present(outcome).network.mu))
        return attempt, outcome

    members: list[int] = []
    fit = CandidateFits.fit
    monkeypatch.setattr(CandidateFits, "fit", counted)
    fixed = {"transform": "none", "encoding": "standard", "temperature": 0.3, "idle_features": "keep"}
    options = make_options(QUICK | {"members": 10} | fixed)
    train(make_table(), "rent", options, reporter=Notes())
    assert members == [10] * 4  # two trials, the full fit and the settling fit
    monkeypatch.setattr(candidates_module, "FEW_ROWS", 100)
    members.clear()
    train(make_table(), "rent", options, reporter=Notes())
    assert members == [5, 5, 10, 10]
