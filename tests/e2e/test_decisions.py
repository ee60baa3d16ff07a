"""Decisions: every door gives the same, and one that is repeated is the same to the bit."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pandas as pd
import pytest
from murho_client import AsyncClient, Client, InvalidInput

import murho
from tests.e2e.support import Service, serve

CONTEXTS: list[dict[str, Any]] = [
    {"Weight": 3504.0, "Year": "1970-06-01", "Automatic": True},
    {"Weight": 2000.0, "Year": "1975-06-01", "Automatic": False},
]
ACTIONS: list[dict[str, Any]] = [
    {"id": "small", "inputs": {"Horsepower": 60.0, "Origin/plant": "Europe"}, "cost": 2},
    {"id": "unknown", "inputs": {"Horsepower": None, "Origin/plant": "USA"}},
    {"id": "large", "inputs": {"Horsepower": 220.0, "Origin/plant": "USA"}, "cost": -0.5},
]


def _post(service: Service, model: str, document: dict[str, Any]) -> httpx2.Response:
    return httpx2.post(f"{service.address}/models/{model}/decide", json=document, timeout=60)


def test_every_door_decides_alike(busy: Service, trained: Path) -> None:
    model = murho.load(trained)
    contexts = {name: [row[name] for row in CONTEXTS] for name in CONTEXTS[0]}
    with Client(busy.address) as client:
        online = client.decide(contexts, ACTIONS, "cars", draw=[3, 200], goal="min")

    async def ask() -> Any:
        async with AsyncClient(busy.address) as other:
            return await other.decide(CONTEXTS, ACTIONS, "cars", draw=[3, 200], goal="min")

    offline = model.decide(pd.DataFrame(CONTEXTS), ACTIONS, draw=[3, 200], goal="min")
    for found in (offline, asyncio.run(ask())):
        assert np.allclose(found.mean, online.mean, rtol=1e-5)
        assert np.allclose(found.std, online.std, rtol=1e-5)
        assert np.allclose(found.probability_best, online.probability_best)
    assert offline.chosen == online.action
    # One row an action, and its cost: what a prediction of the same row says.
    rows = pd.DataFrame([{**context, **each["inputs"]} for context in CONTEXTS for each in ACTIONS])
    drawn = model.predict(rows)
    assert np.allclose(offline.mean, np.add(np.reshape(drawn.mean, (2, 3)), [2.0, 0.0, -0.5]), rtol=1e-5)
    assert np.allclose(offline.probability_best.sum(axis=1), 1.0)


def test_the_same_draw_decides_the_same_to_the_bit_under_load(busy: Service) -> None:
    contexts = [{**CONTEXTS[row % 2], "Weight": 1500.0 + row} for row in range(400)]
    first = _post(busy, "cars", {"contexts": contexts, "actions": ACTIONS}).json()
    again = {"contexts": contexts, "actions": ACTIONS, "draw": first["draw"], "seed": first["seed"]}
    row = {**CONTEXTS[0], **ACTIONS[0]["inputs"]}
    with ThreadPoolExecutor(4) as pool:
        url = f"{busy.address}/models/cars/predict"
        load = [pool.submit(httpx2.post, url, json={"inputs": [row], "seed": first["seed"]}) for _ in range(60)]
        repeated = [_post(busy, "cars/versions/1", again).json() for _ in range(3)]
        assert all(each.result().status_code == 200 for each in load)
    assert [each == first for each in repeated] == [True] * 3
    best = np.array(first["probability_best"])
    chosen = [first["actions"].index(name) for name in first["action"]]
    assert first["propensity"] == best[np.arange(len(best)), chosen].tolist()
    assert (np.array(first["propensity"]) > 0.0).all()


def test_classes(busy: Service) -> None:
    row = {**CONTEXTS[0], **ACTIONS[0]["inputs"]}
    plain = _post(busy, "bodies", {"contexts": [row], "policy": "greedy"}).json()
    predicted = httpx2.post(f"{busy.address}/models/bodies/predict", json={"inputs": [row]}).json()
    assert plain["action"] == predicted["prediction"]
    assert np.allclose(plain["mean"], predicted["probabilities"], rtol=1e-5)
    utility = dict.fromkeys(predicted["classes"], 1.0)
    actions = [{"id": "sell", "utility": utility, "cost": 2}, {"id": "keep", "utility": dict.fromkeys(utility, 0.5)}]
    found = _post(busy, "bodies", {"contexts": [row], "actions": actions}).json()
    assert found["action"] == ["keep"]
    assert found["propensity"] == [1.0]
    # This checkpoint has no held-out rows, so nothing is controlled.
    unsure = _post(busy, "bodies", {"contexts": [row], "policy": "greedy", "abstain": {"risk": 0.05}}).json()
    assert (unsure["action"], unsure["evidence"]) == (["unsure"], None)
    assert "evidence" not in plain


REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"contexts": []}, ["/contexts"]),
    ({"contexts": [{**CONTEXTS[0], "Origin/plant": "USA"}]}, ["/contexts/0/Origin~1plant"]),
    ({"contexts": [{"Year": "x"}]}, ["/contexts/0/Automatic", "/contexts/0/Weight", "/contexts/0/Year"]),
    ({"actions": [{"id": "a"}]}, ["/actions/0/inputs"]),
    ({"actions": [ACTIONS[0], {**ACTIONS[1], "id": "small"}]}, ["/actions/1/id"]),
    ({"actions": [{**ACTIONS[0], "id": "unsure"}]}, ["/actions/0/id"]),
    (
        {"actions": [ACTIONS[0], {"id": "b", "inputs": {"Horsepower": "x"}}]},
        ["/actions/1/inputs/Horsepower", "/actions/1/inputs/Origin~1plant"],
    ),
    ({"actions": [{**ACTIONS[0], "utility": {"a": 1}}]}, ["/actions/0/utility"]),
    ({"policy": "best"}, ["/policy"]),
    ({"policy": "threshold"}, ["/threshold"]),
    ({"draw": [1, 256]}, ["/draw/1"]),
    ({"policy": "greedy", "abstain": {"risk": 0.05}}, ["/abstain"]),
    ({"record": True}, ["/record"]),  # without a store
]


def test_what_is_refused(busy: Service, trained: Path) -> None:
    for change, pointers in REFUSED:
        answer = _post(busy, "cars", {"contexts": CONTEXTS, "actions": ACTIONS, **change})
        assert answer.status_code == 422
        assert sorted(error["pointer"] for error in answer.json()["errors"]) == pointers
    with Client(busy.address) as client, pytest.raises(InvalidInput, match="not a feature"):
        client.decide(CONTEXTS, [{"id": "a", "inputs": {"Horsepowers": 1.0}}], "cars")
    for wrong in ({"policy": "best"}, {"draw": [0]}, {"samples": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            murho.load(trained).decide(pd.DataFrame(CONTEXTS), ACTIONS, **wrong)


def test_a_recorded_decision_is_repeated_to_the_bit_and_has_an_outcome(trained: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "murho.db")
    with serve(trained.parent.parent, tmp_path / "log", store=store, record_inputs="true") as service:
        with Client(service.address) as client:
            made = client.decide(CONTEXTS * 20, ACTIONS, ids=[f"a/{number}" for number in range(40)])
            assert len(set(made.ids)) == 40
            record = client.request("GET", f"/models/cars/decisions/{made.ids[7]}").json()
            assert record["action"] == made.action[7]
            assert record["propensity"] == made.propensity[7]
            again = client.request("POST", "/models/cars/versions/1/decide", json=record["request"]).json()
            for name in ("action", "propensity", "mean", "std", "probability_best"):
                assert again[name][0] == np.asarray(made.raw[name])[7].tolist()
            told = client.outcomes({"id": [*made.ids, "none"], "value": [30.0] * 41}, "cars")
            assert (told.accepted, list(told.unknown)) == (40, ["none"])
            assert client.quality("cars")["versions"][0]["n"] == 40
        held_back = {"contexts": CONTEXTS, "actions": ACTIONS, "policy": "threshold", "threshold": 1e3, "record": True}
        assert _post(service, "cars", held_back).json()["ids"] == [None, None]
        missing = httpx2.get(f"{service.address}/models/cars/decisions/none")
        assert missing.status_code == 404


def test_a_linear_version_warns_that_contexts_hardly_change_its_best_action(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"x": random.normal(size=80), "arm": random.choice(["a", "b"], 80)})
    rows["reward"] = rows.x * np.where(rows.arm == "a", 1.0, -1.0) + 0.1 * random.normal(size=80)
    actions = [{"id": arm, "inputs": {"arm": arm}} for arm in "ab"]
    for name, hidden in (("line", ()), ("network", (8,))):
        given: dict[str, Any] = {"hidden": hidden, "members": 1, "epochs": 20, "encoding": "standard"}
        murho.train(rows, "reward", noise="homoscedastic", **given).save(name, tmp_path / "checkpoints")
    with serve(tmp_path / "checkpoints", tmp_path / "log") as service:
        document = {"contexts": [{"x": -1.0}, {"x": 1.0}], "actions": actions}
        (warning,) = _post(service, "line", document).json()["warnings"]
        assert warning["pointer"] == "/actions"
        assert "--hidden 50" in warning["message"]
        assert _post(service, "network", document).json()["warnings"] == []
