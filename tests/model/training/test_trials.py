"""The trials of a search: their members, and a narrow choice that is made again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from murho.model.training import candidate_fits, stages
from murho.model.training.options import make_options
from murho.model.training.resuming import ScoredFit, fit_or_resume
from murho.model.training.train import train
from tests.model.conftest import Notes, make_table

QUICK = {"epochs": 12, "hidden": (6,), "members": 2}


def _scores(nll: float, rows: int = 100) -> torch.Tensor:
    """The same NLL in every row, and a CRPS of 1."""
    return torch.tensor([nll, 1.0]).double().unsqueeze(1).expand(2, rows)


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

    monkeypatch.setattr(stages, "FEW_ROWS", 100)
    monkeypatch.setattr(candidate_fits, "fit_or_resume", scored)
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
    def scored(*arguments: Any, **others: Any) -> ScoredFit:
        found = fit_or_resume(*arguments, **others)
        members.append(len(found.fit.network.mu))
        return found

    members: list[int] = []
    monkeypatch.setattr(candidate_fits, "fit_or_resume", scored)
    fixed = {"transform": "none", "encoding": "standard", "temperature": 0.3, "idle_features": "keep"}
    options = make_options(QUICK | {"members": 10} | fixed)
    train(make_table(), "rent", options, reporter=Notes())
    assert members == [10] * 4  # two trials, the full fit and the settling fit
    monkeypatch.setattr(stages, "FEW_ROWS", 100)
    members.clear()
    train(make_table(), "rent", options, reporter=Notes())
    assert members == [5, 5, 10, 10]
