"""Outcomes in real processes: what was acknowledged survives a kill; the commands tell and judge."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.e2e.support import Service, serve
from tests.support import ROOT, call_murho

RENTS = ROOT / "tests" / "fixtures" / "checkpoints"
ROW = {"sqm": 87.5, "rooms": 3, "city": "Bern", "parking": "yes", "listed": "2024-08-04"}


def test_what_was_acknowledged_survives_a_kill_in_every_worker(tmp_path: Path) -> None:
    keys: list[str] = []
    with serve(RENTS, tmp_path / "log", store=str(tmp_path / "murho.db"), workers="2") as service:

        def ask() -> None:
            with httpx.Client(base_url=service.address) as client:
                while True:
                    try:
                        answer = client.post("/predict", json={"inputs": [ROW], "record": True, "samples": 8})
                        keys.extend(answer.json()["ids"])
                    except (httpx.TransportError, KeyError):  # killed, or its worker is
                        return

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(1.5)
        service.process.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join(30)
    assert len(keys) > 20
    with serve(RENTS, tmp_path / "log", store=str(tmp_path / "murho.db")) as service:
        outcomes = {"outcomes": [{"id": key, "value": 800.0} for key in keys]}
        told = service.client.post("/models/rents/outcomes", json=outcomes).json()
        assert (told["accepted"], told["unknown"]) == (len(keys), [])
        assert service.client.get("/models/rents/quality").json()["versions"][0]["n"] == len(keys)


def test_the_commands_tell_and_judge(tmp_path: Path) -> None:
    store = tmp_path / "murho.db"
    with serve(RENTS, tmp_path / "log", store=str(store)) as service:
        keys = [str(row) for row in range(30)]
        answer = service.client.post("/predict", json={"inputs": [ROW] * 30, "ids": keys}).json()
        values = [f"{key},{mean}\n" for key, mean in zip(keys, answer["mean"], strict=True)]
        (tmp_path / "true.csv").write_text("".join(["what came true\n", "id,value\n", *values, "none,1\n"]))
        told = call_murho("outcomes", "rents", tmp_path / "true.csv", "--skip-lines", "1", "--url", service.address)
        assert "accepted: 30" in told.stderr
        assert "unknown: none:" in told.stderr
        assert " 30 " in call_murho("quality", "rents", "--url", service.address).stdout
    done = call_murho("outcomes", "rents", "--store", store, "--forget", "3", "--output", tmp_path / "out.parquet")
    assert "exported: 29" in done.stderr
    assert "100.0 %" in call_murho("quality", "rents", "--store", store).stdout
    (tmp_path / "wrong.csv").write_text("id,value\n4,1\n5,x\n")
    wrong = call_murho("outcomes", "rents", tmp_path / "wrong.csv", "--store", store, code=1)
    assert "wrong.csv, row 2, value: Expected a number within ±1e38, not the string 'x'." in wrong.stderr


def _asked(service: Service, **more: Any) -> dict[str, Any]:
    # A connection each, so that any worker may answer.
    request = {"inputs": [ROW] * 40, "thresholds": [2_000.0], **more}
    answer: dict[str, Any] = service.client.post("/predict", json=request, headers={"connection": "close"}).json()
    return answer


def _same_bands(one: dict[str, Any], other: dict[str, Any]) -> None:
    np.testing.assert_allclose(one["percentiles"]["values"], other["percentiles"]["values"], rtol=1e-5)


def _everywhere(service: Service, state: str | None) -> dict[str, Any]:
    """Return an answer with a state that all workers have taken up."""
    end, answers = time.monotonic() + 30.0, list[dict[str, Any]]()
    while time.monotonic() < end:
        answers.append(_asked(service))
        newest = answers[-10:]
        if len(newest) == 10 and all((each.get("calibration") or {}).get("state") == state for each in newest):
            for each in newest:
                _same_bands(each, newest[0])
            return newest[0]
        time.sleep(0.05)
    raise AssertionError(f"state {state} was not taken up: {answers[-1]}")


def test_all_workers_move_their_bands_and_one_command_moves_them_back(tmp_path: Path) -> None:
    store = str(tmp_path / "murho.db")
    with serve(RENTS, tmp_path / "log", store=store, workers="2", adapt="adaptive") as service:
        before = _asked(service, record=True)
        low, middle, high = np.array(before["percentiles"]["values"][0])
        truth = middle + 0.8 * (high - low)  # above the band of 90 %
        outcomes = [{"id": key, "value": truth} for key in before["ids"]]
        assert service.client.post("/models/rents/outcomes", json={"outcomes": outcomes}).json()["accepted"] == 40
        after = _everywhere(service, "1")
        new_low, _, new_high = after["percentiles"]["values"][0]
        assert new_low < truth < new_high
        assert new_high / new_low < 1.1 * high / low  # of a logarithm: it has moved, and hardly widened
        assert new_low < after["mean"][0] < new_high
        square = np.square([after[name][0] for name in ("std", "epistemic_std", "aleatoric_std")])
        assert square[0] == pytest.approx(square[1] + square[2])
    with serve(RENTS, tmp_path / "log", store=store, adapt="adaptive") as service:
        _same_bands(_everywhere(service, "1"), after)
        said = call_murho("adaptation", "rents", "--store", store, "--back-to", "0").stdout
        assert "the checkpoint's" in said
        _same_bands(_everywhere(service, None), before)


def test_outcomes_make_a_better_version_once(own: Path, tmp_path: Path) -> None:
    database, random = tmp_path / "murho.db", np.random.default_rng(0)
    rows = [
        {
            "Weight": random.uniform(1200, 4800),
            "Horsepower": random.uniform(50, 220),
            "Automatic": bool(row % 2),
            "Year": f"19{70 + row % 12}-06-01",
            "Origin/plant": ("USA", "Europe")[row % 2],
        }
        for row in range(160)
    ]
    with serve(own, tmp_path / "log", store=str(database), record_inputs="true") as service:
        answer = service.client.post("/models/cars/predict", json={"inputs": rows, "record": True}).json()
        outcomes = [{"id": key, "value": mean + 12.0} for key, mean in zip(answer["ids"], answer["mean"], strict=True)]
        assert service.client.post("/models/cars/outcomes", json={"outcomes": outcomes}).json()["accepted"] == 160
    options = ("learn", "--store", database, "--checkpoints", own, "--json")
    found = json.loads(call_murho(*options).stdout)
    assert (found["taken"], found["version"]) == (True, "2")
    assert (found["learned"], found["judged"], found["unusable"]) == (120, 40, 0)
    assert found["after"] < 0.8 * found["before"]
    # What was learned is not learned again; what has judged waits for more.
    again = json.loads(call_murho(*options).stdout)
    assert (again["taken"], again["outcomes"], "too few" in again["why"]) == (False, 40, True)
    assert sorted(each.name for each in (own / "cars").iterdir()) == ["1", "2"]
