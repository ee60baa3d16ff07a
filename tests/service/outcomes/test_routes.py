from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from murho.command_line import app
from murho.service.security import digest_of
from tests.service.bodies import ARROW, arrow, read_table
from tests.service.support import ROW, AppClient, FakeModel, make_client, pointers

OUTCOMES, QUALITY = "/models/cars/outcomes", "/models/cars/quality"


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[AppClient]:
    with make_client(FakeModel(), store=str(tmp_path / "murho.db"), record_inputs=True) as client:
        yield client


def told(*pairs: tuple[object, object]) -> dict[str, Any]:
    return {"outcomes": [{"id": key, "value": value} for key, value in pairs]}


def test_predictions_are_recorded_and_judged(recording: AppClient) -> None:
    plain = recording.post("/predict", {"inputs": [ROW, ROW]}).json()
    assert "ids" not in plain
    own = recording.post("/predict", {"inputs": [ROW, ROW], "ids": ["a", "b"], "include": ["mc_error"]}).json()
    assert own["ids"] == ["a", "b"]
    assert own["percentiles"] == plain["percentiles"]
    assert len(own["mc_error"]["percentiles"][0]) == 3
    given = recording.post("/predict", {"inputs": [ROW], "record": True}).json()["ids"]
    answer = recording.post(OUTCOMES, told(("a", 130.0), (given[0], 131), ("c", 1.0)))
    assert answer.json()["accepted"] == 2
    assert [each["id"] for each in answer.json()["unknown"]] == ["c"]
    assert recording.get(f"{QUALITY}?window=999999w").json()["versions"][0]["n"] == 2
    found = recording.get(f"{QUALITY}?window=2d&by=Origin/plant").json()
    (version,) = found["versions"]
    assert (version["n"], version["bias"]) == (2, -0.5)
    assert version["groups"][0]["group"] == "USA"


def test_a_corrected_outcome_leaves_no_trace_and_all_can_be_counted_again(tmp_path: Path) -> None:
    store = str(tmp_path / "murho.db")
    with make_client(FakeModel(), store=store, adapt="adaptive") as client:
        ids = client.post("/predict", {"inputs": [ROW] * 40, "record": True}).json()["ids"]
        values = [130.0 + place % 3 for place in range(40)]
        client.post(OUTCOMES, told(*zip(ids, [1_764_350_000_000, 9.9e37, *values[2:]], strict=True)))
        assert client.get(QUALITY).json()["versions"][0]["rmse"] > 1e36
        assert client.post(OUTCOMES, told(*zip(ids, values, strict=True))).json()["revised"] == 2
        (now,) = client.get(QUALITY).json()["versions"]
        assert (now["n"], now["bias"]) == (40, -0.975)
        assert now["rmse"] == pytest.approx(math.sqrt((13 + 13 * 4) / 40))
        assert client.post("/predict", {"inputs": [ROW]}).json()["calibration"]["outcomes"] == 40
    done = CliRunner().invoke(app, ["outcomes", "cars", "--store", store, "--recount", "--json"])
    assert json.loads(done.stdout) == {"recounted": 40}
    done = CliRunner().invoke(app, ["quality", "cars", "--store", store, "--json"])
    (again,) = json.loads(done.stdout)["versions"]
    assert (again["rmse"], again["pit"], again["history"]) == (now["rmse"], now["pit"], now["history"])


def test_tables_have_ids_and_bring_outcomes(recording: AppClient) -> None:
    names = ",".join(ROW)
    body = f"{names}\n" + "3000,100,true,1975-06-01,USA\n" * 3
    headers = {"content-type": "text/csv", "accept": ARROW}
    answer = recording.post("/predict?record=true", content=body, headers=headers)
    ids = read_table(answer)["id"].to_pylist()
    assert len(set(ids)) == 3
    text = recording.post("/predict?record=true", content=body, kind="text/csv").text
    assert text.startswith("id,mean,")
    own = recording.post("/predict?ids=a,7,c", content=body, kind="text/csv").text
    assert [line.split(",")[0] for line in own.splitlines()] == ["id", "a", "7", "c"]
    wrong = recording.post("/predict?ids=a,b", content=body, kind="text/csv")
    assert pointers(wrong) == ["/ids"]
    sent = recording.post(OUTCOMES, content=f"value,id\n130,{ids[0]}\n", kind="text/csv")
    assert sent.json()["accepted"] == 1
    stream = arrow(pa.table({"id": ids, "value": [130.0, 131.0, 129.0]}))
    assert recording.post(OUTCOMES, content=stream, kind=ARROW).json()["accepted"] == 3
    assert recording.get(QUALITY).json()["versions"][0]["n"] == 3


def decisions(text: str, contexts: int) -> dict[str, Any]:
    context = {name: value for name, value in ROW.items() if name not in ("Horsepower", "Origin/plant")}
    actions = [{"id": f"{power}", "inputs": {"Horsepower": power, "Origin/plant": text}} for power in (80.0, 90.0)]
    return {"contexts": [context] * contexts, "actions": actions, "samples": 8, "record": True}


def test_the_actions_of_decisions_are_stored_once_and_come_back(recording: AppClient) -> None:
    made = recording.post("/decide", decisions("USA", 3) | {"policy": "greedy"}).json()
    store = recording.state["service"].recorder.store
    path = "/models/cars/decisions"
    found = [recording.get(f"{path}/{key}").json() for key in made["ids"]]
    assert all(len(each["request"]["actions"]) == 2 for each in found)
    again = recording.post("/decide", found[1]["request"]).json()
    assert again["action"] == [found[1]["action"]]
    kept = [store.prediction("cars", key).decision for key in made["ids"]]
    assert all("Horsepower" not in each for each in kept)
    assert len({orjson.loads(each)["shared"] for each in kept}) == 1
    assert store.clean(before=1e12) == 3
    assert store.shared(orjson.loads(kept[0])["shared"]) is None


def test_decisions_whose_inputs_would_take_too_much_are_refused_before_they_are_made(tmp_path: Path) -> None:
    model = FakeModel()
    limits: dict[str, Any] = {"record_inputs": True, "max_body_bytes": 20_000}
    with make_client(model, store=str(tmp_path / "murho.db"), **limits) as client:
        assert client.post("/decide", decisions("x" * 5_000, 3)).status_code == 200
        calls = len(model.calls)
        assert pointers(client.post("/decide", decisions("x" * 5_000, 5)), 413) == []
        assert len(model.calls) == calls


def test_own_ids_belong_to_the_rows_of_all_blocks_of_a_table(recording: AppClient) -> None:
    names, cells = ",".join(ROW), f"3000,100,true,1975-06-01,{'x' * 62_000}\n"
    body, kind = f"{names}\n" + cells * 32, {"content-type": "text/csv"}  # blocks of 16 rows
    own = [f"row{place}" for place in range(32)]
    half = recording.post(f"/predict?ids={','.join(own[:16])}", content=body, headers=kind)
    assert pointers(half) == ["/ids"]
    answer = recording.post(f"/predict?ids={','.join(own)}", content=body, headers=kind)
    assert [line.split(",")[0] for line in answer.text.splitlines()[1:]] == own
    assert recording.post(OUTCOMES, told(*((key, 1.0) for key in own))).json()["accepted"] == 32


@pytest.mark.parametrize(
    ("outcomes", "wrong"),
    [
        ({}, ["/outcomes"]),
        ({"outcomes": [{"id": "a", "value": 1.0}], "more": 1}, ["/more"]),
        (told(("a", "3"), ("b", None), ("c", True), ("d", -1e200)), [f"/outcomes/{row}/value" for row in range(4)]),
        (told(("", 1.0), (3, 1.0), ("x\n", 1.0), ("y" * 201, 1.0)), [f"/outcomes/{row}/id" for row in range(4)]),
        ({"outcomes": [{"id": "a"}, 3]}, ["/outcomes/0/value"]),
    ],
)
def test_outcomes_that_cannot_be_used_are_refused_as_a_whole(
    recording: AppClient, outcomes: dict[str, Any], wrong: list[str]
) -> None:
    assert recording.get(f"{QUALITY}?by=Year").json()["versions"] == []  # nothing is recorded yet
    recording.post("/predict", {"inputs": [ROW], "ids": ["a"]})
    answer = recording.post(OUTCOMES, content=orjson.dumps(outcomes), kind="application/json")
    assert answer.status_code == 422
    assert set(wrong) <= set(pointers(answer))
    assert recording.get(QUALITY).json()["versions"] == []


def test_other_requests_are_refused(recording: AppClient, client: AppClient) -> None:
    assert recording.post("/models/other/outcomes", told(("a", 1.0))).status_code == 404
    assert recording.post(OUTCOMES, content=b"{}", kind="image/png").status_code == 415
    for body in (b"\xff\xfe", b"id,value\n1", b"id,value," + b"x," * 1000 + b"\n1,2", b"value,id\n"):
        assert recording.post(OUTCOMES, content=body, kind="text/csv").status_code == 422
    many = b"id,value\n" + b"a,1\n" * 100_001
    assert recording.post(OUTCOMES, content=many, kind="text/csv").status_code == 413
    stream = arrow(pa.table({"id": pa.array(["a"]).dictionary_encode(), "value": [1.0]}))
    assert pointers(recording.post(OUTCOMES, content=stream, kind=ARROW)) == ["/id"]
    assert pointers(recording.get(f"{QUALITY}?window=1y&coverage=0.333&what=1")) == ["/window", "/coverage", "/what"]
    assert pointers(recording.post("/predict", {"inputs": [ROW], "record": True, "samples": 0})) == ["/record"]
    assert pointers(recording.post("/predict", {"inputs": [ROW, ROW], "ids": ["a", "a"]})) == ["/ids/1"]
    assert pointers(recording.post("/predict", {"inputs": [ROW], "ids": ["a", "b"]})) == ["/ids"]
    assert pointers(recording.post("/aggregate", {"inputs": [ROW], "record": True})) == ["/record"]
    assert pointers(client.post("/predict", {"inputs": [ROW], "record": True})) == ["/record"]  # no store
    assert client.post(OUTCOMES, told(("a", 1.0))).status_code == 422


def test_all_are_recorded_by_setting_and_what_has_no_room_is_said(tmp_path: Path) -> None:
    with make_client(FakeModel(), store=str(tmp_path / "all.db"), record="all") as client:
        assert len(client.post("/predict", {"inputs": [ROW]}).json()["ids"]) == 1
        assert "ids" not in client.post("/predict", {"inputs": [ROW], "samples": 0}).json()
        assert "ids" not in client.post("/predict", {"inputs": [ROW], "record": False}).json()
    with make_client(FakeModel(), store=str(tmp_path / "small.db"), record="all", record_bytes=1) as client:
        answer = client.post("/predict", {"inputs": [ROW]}).json()
        assert answer["ids"] == [None]
        assert answer["warnings"][-1]["pointer"] == "/record"


def test_recording_and_telling_take_a_right_and_ids_are_a_callers_own(tmp_path: Path) -> None:
    keys = {"shop": ":outcomes", "lab": ":outcomes", "web": "", "ops": ":admin"}
    lines = tuple(f"{name}:sha256:{digest_of(name.encode() * 16).hex()}{more}" for name, more in keys.items())
    with make_client(FakeModel(), store=str(tmp_path / "murho.db"), api_keys=lines) as client:

        def post(name: str, path: str, document: dict[str, Any]) -> Any:
            answer = client.post(path, document, headers={"x-api-key": name * 16})
            return answer.json() if answer.status_code == 200 else answer.status_code

        one, other = {"inputs": [ROW], "ids": ["17"]}, {"inputs": [{**ROW, "Weight": 1000.0}], "ids": ["17"]}
        assert post("web", "/predict", {"inputs": [ROW]})["mean"]
        for refused in (one, {"inputs": [ROW], "record": True}):
            assert post("web", "/predict", refused) == 403
        assert post("web", OUTCOMES, told(("17", 1.0))) == 403
        decision = client.get("/models/cars/decisions/17", headers={"x-api-key": "web" * 16})
        assert decision.status_code == 403
        assert post("shop", "/predict", one)["ids"] == ["17"]
        assert post("lab", "/predict", other)["ids"] == ["17"]
        assert post("lab", OUTCOMES, told(("17", 110.0), ("18", 1.0)))["unknown"][0]["id"] == "18"
        # A key of another name tells of them by the name, too.
        assert post("ops", OUTCOMES, told(("17", 1.0), ("shop/17", 131.0)))["accepted"] == 1
        (version,) = client.get(QUALITY, headers={"x-api-key": "web" * 16}).json()["versions"]
        assert (version["n"], version["bias"]) == (2, -0.5)
