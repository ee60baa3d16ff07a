"""The full fit and the settling fit: what is kept, and which members of a mixed encoding do without the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from murho.model.bbb.network import inputs_read
from murho.model.training.options import make_options
from murho.model.training.search import CandidateFits
from murho.model.training.train import train
from tests.model.conftest import Notes, make_table, present, rescored, with_losses_of_judges
from tests.model.rooms import rooms_table

if TYPE_CHECKING:
    from murho.model.bbb.fit import Fit
    from murho.model.training.candidates import Attempt, Candidate

QUICK = {"epochs": 12, "hidden": (6,), "members": 2}


@pytest.mark.parametrize("better", ["full", "settling"])
def test_what_has_settled_is_kept_however_well_the_fits_before_it_score(
    monkeypatch: pytest.MonkeyPatch, better: str
) -> None:
    def scored(
        fits: CandidateFits, candidate: Candidate, stage: str, start: Fit | None = None
    ) -> tuple[Attempt, Fit | None]:
        assert (start is not None) == (stage == "settling")
        attempt, kept[stage] = fit(fits, candidate, stage, start)
        return rescored(attempt, {"trial": -1.02, better: -1.0}.get(stage, 1.0)), kept[stage]

    kept: dict[str, Fit | None] = {}
    fit = CandidateFits.fit
    monkeypatch.setattr(CandidateFits, "fit", scored)
    options = make_options(QUICK | {"members": 10, "transform": "none", "noise": "heteroscedastic"})
    trained = train(make_table(), "rent", options, reporter=Notes())
    assert trained.spec.architecture.members == 10
    torch.testing.assert_close(
        trained.posterior.tensors["layers.0.bias.mu"],
        present(kept["settling"]).network.named_tensors()["layers.0.bias.mu"].detach(),
    )


@pytest.mark.parametrize("better", ["full", "settling"])
def test_of_classes_the_better_of_the_full_and_the_settling_fit_is_kept(
    monkeypatch: pytest.MonkeyPatch, better: str
) -> None:
    def scored(fits: CandidateFits, candidate: Candidate, stage: str, *start: Any) -> tuple[Attempt, Fit | None]:
        attempt, kept[stage] = fit(fits, candidate, stage, *start)
        return rescored(attempt, 0.1 if stage == better else 1.0), kept[stage]

    kept: dict[str, Fit | None] = {}
    notes = Notes()
    fit = CandidateFits.fit
    monkeypatch.setattr(CandidateFits, "fit", scored)
    options = make_options({"epochs": 2, "hidden": (6,), "members": 2, "encoding": "standard", "whiten": "no"})
    trained = train(rooms_table(rows=1_300), "room", options, reporter=notes)
    torch.testing.assert_close(
        trained.posterior.tensors["layers.0.bias.mu"],
        present(kept[better]).network.named_tensors()["layers.0.bias.mu"].detach(),
    )
    assert not any("settled" in line for line in notes.lines)


@pytest.mark.parametrize(
    ("binned", "plain", "kept"), [(0.3, 0.1, "standard"), (0.1, 0.3, "piecewise"), (0.3, 0.3, "mixed")]
)
def test_all_members_read_alike_where_one_kind_is_better_alone(
    monkeypatch: pytest.MonkeyPatch, binned: float, plain: float, kept: str
) -> None:
    with_losses_of_judges(monkeypatch, binned, plain, 0.2)
    options = make_options({"epochs": 4, "hidden": (6,), "members": 10, "temperature": 0.3})
    trained = train(rooms_table(rows=120), "room", options, reporter=Notes())
    tried = [(one["stage"], one["encoding"]) for one in trained.spec.training["candidates"]]
    again = [] if kept == "mixed" else [("full", kept)]
    assert tried == [("full", "mixed"), *again, ("settling", kept)]
    assert (inputs_read(trained.posterior.tensors) is None) == (kept != "mixed")


def test_a_mixed_encoding_that_was_asked_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with_losses_of_judges(monkeypatch, 0.1, 0.3, 0.2)
    options = make_options(
        {"epochs": 4, "hidden": (6,), "members": 10, "temperature": 0.3, "encoding": "mixed"},
    )
    spec = train(rooms_table(rows=120), "room", options, reporter=Notes()).spec
    assert {one["encoding"] for one in spec.training["candidates"]} == {"mixed"}
