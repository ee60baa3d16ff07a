"""The search: the candidates it tries, the one it keeps, options fixed by the user, and interruptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from murho.model.bbb.registry import NOISE_KINDS
from murho.model.bbb.steps import CompiledSteps
from murho.model.training import candidates as candidates_module
from murho.model.training.options import make_options
from murho.model.training.train import train
from tests.model.conftest import Notes, make_table

if TYPE_CHECKING:
    import pytest

    from murho.model.bbb.fit import Epoch

QUICK = {"epochs": 12, "hidden": (6,), "members": 2}


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


def test_from_many_rows_on_the_temperature_is_found_along_the_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates_module, "FEW_ROWS", 100)
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
    fixed = {"noise": "mixture", "transform": "log", "encoding": "piecewise", "temperature": 1.0}
    spec = train(make_table(), "rent", make_options(QUICK | fixed), reporter=Notes()).spec
    candidates = spec.training["candidates"]
    assert [one["stage"] for one in candidates] == ["full", "settling"]
    assert _tried(candidates) == [("mixture", "log", "piecewise", 1.0)] * 2


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


def test_an_interruption_in_the_first_epoch_of_a_trial_keeps_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    notes, steps = Notes(), CompiledSteps.take

    def interrupted(*arguments: Any) -> float:
        if len(notes.titles) == 2:
            raise KeyboardInterrupt
        return steps(*arguments)

    monkeypatch.setattr(CompiledSteps, "take", interrupted)
    trained = train(make_table(), "rent", make_options(QUICK), reporter=notes)
    assert trained.spec.training["interrupted"]
    assert len(trained.spec.training["candidates"]) == 1
