"""Bands that follow outcomes, over HTTP and in the store: named in answers, learned late, rolled back, thinned out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from murho.command_line import app
from murho.service.outcomes.adaptation import ADAPTATION, AdaptationFollower, state_of
from murho.service.outcomes.store import Store
from murho.service.outcomes.types import Batch
from tests.model.conftest import present
from tests.service.outcomes.test_routes import OUTCOMES, told
from tests.service.outcomes.test_store import GRID, NUMBER
from tests.service.support import ROW, FakeModel, make_client

LATE = 24


def test_answers_name_the_state_of_their_bands_and_one_command_goes_back(tmp_path: Path) -> None:
    model, store = FakeModel(), str(tmp_path / "murho.db")
    with make_client(model, store=store, adapt="adaptive") as client:
        first = client.post("/predict", {"inputs": [ROW] * 20, "record": True}).json()
        assert "calibration" not in first  # without outcomes the checkpoint's bands hold
        client.post(OUTCOMES, told(*((key, mean + 2.5) for key, mean in zip(first["ids"], first["mean"], strict=True))))
        answer = client.post("/predict", {"inputs": [ROW], "record": True}).json()
        assert answer["calibration"] == {"adapted": True, "outcomes": 20, "state": "1"}
        adapted = present(model.calls[-1].adapted)
        assert float(adapted.drift_map.calibrate(torch.zeros(1, dtype=torch.float64))) > 0.5
        for options in ({"calibrated": False}, {"noise": False}, {"samples": 0}):
            assert "calibration" not in client.post("/predict", {"inputs": [ROW], **options}).json()
        table = ",".join(ROW) + "\n3000,100,true,1975-06-01,USA\n"
        assert client.post("/predict", content=table, kind="text/csv").headers["murho-state"] == "1"
        client.post(OUTCOMES, told((answer["ids"][0], 0.0)))
        assert client.post("/predict", {"inputs": [ROW]}).json()["calibration"]["state"] == "2"
        for number, outcomes in ((1, 20), (0, None)):
            done = CliRunner().invoke(app, ["adaptation", "cars", "--store", store, "--back-to", str(number)])
            assert done.exit_code == 0, done.output
            now = _until_another(client, answer.get("calibration"))
            answer = now
            assert (now.get("calibration") or {}).get("outcomes") == outcomes
        wrong = CliRunner().invoke(app, ["adaptation", "cars", "--store", store, "--back-to", "9"])
        assert "there are 1 to 4" in str(wrong.exception or wrong.output)


def _until_another(client: Any, said: Any) -> dict[str, Any]:
    end = time.monotonic() + 10.0
    while time.monotonic() < end:
        answer: dict[str, Any] = client.post("/predict", {"inputs": [ROW]}).json()
        if answer.get("calibration") != said and (answer.get("calibration") or {}).get("state") != "2":
            return answer
        time.sleep(0.05)
    raise AssertionError("no other state was taken up")


@pytest.mark.parametrize("method", ["rolling", "adaptive"])
def test_late_outcomes_are_compared_with_the_bands_that_they_were_answered_with(tmp_path: Path, method: Any) -> None:
    """Truth is N(13, 1.5^2) where the model says N(10, 1), and each outcome is told 24 answers later."""
    store, generator = Store(str(tmp_path / "murho.db"), [AdaptationFollower(method)]), np.random.default_rng(0)
    truth, inside = generator.normal(13.0, 1.5, 300), []
    for place, value in enumerate(truth.tolist()):
        latest = store.state("m", "1", ADAPTATION)
        moved = None if latest is None else present(state_of(latest.document)).drift_map
        scores = torch.from_numpy(GRID.astype(np.float64))
        grid = (scores if moved is None else moved.calibrate(scores)).numpy()
        state = None if moved is None or latest is None else str(latest.number)
        means, answers = np.array([10.0]).tobytes(), grid.astype(np.float32).tobytes()
        store.record([Batch("m", "1", float(place), [str(place)], means, answers, state=state, facts=NUMBER)])
        inside.append(10.0 + grid[4] <= value <= 10.0 + grid[-5])
        if place >= LATE:
            store.add("m", [str(place - LATE)], [float(truth[place - LATE])])
    assert np.mean(inside[:LATE]) < 0.4
    assert np.mean(inside[-200:]) == pytest.approx(0.9, abs=0.05)
    learned = present(state_of(present(store.state("m", "1", ADAPTATION)).document))
    assert np.mean(learned.scores) == pytest.approx(3.0, abs=0.3)  # of the checkpoint's bands, whatever was answered
    store.close()


def test_of_states_far_back_only_some_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("murho.service.outcomes.store.KEEPS", 350)
    store = Store(str(tmp_path / "murho.db"))
    for number in range(401):
        assert store.put_state("m", "1", "kind", str(number)) == number
    kept = [state.number for state in store.states("m", "1", "kind")]
    assert kept == [*range(400, 144, -1), *range(144, 50, -16)]
    store.close()
