"""`murho learn`: outcomes that came true otherwise make a better version, once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from tests.e2e.support import serve
from tests.support import call_murho

if TYPE_CHECKING:
    from pathlib import Path


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
        service.wait_for_line("(Ready: )")
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
