"""Models on demand, through the application: what is asked for is loaded, and everything that names models goes on."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from murho.model.errors import StorageError
from murho.service.app import create_app
from murho.service.settings import Settings
from tests.service.support import ROW, AppClient, FakeModel, FakeSource
from tests.support import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import httpx

RENTS = ROOT / "tests" / "fixtures" / "checkpoints" / "rents" / "1"
BODY = {"inputs": [ROW], "samples": 4}
Found = FakeModel | tuple[str, str, str]


class OnDemand(AppClient):
    """An application that holds two models; it looks for new versions only when asked to."""

    def __init__(self, *found: Found, **settings: Any) -> None:
        self.source = FakeSource(*found)
        settings = {"loaded_models": 2, "watch_seconds": 0, **settings}
        super().__init__(create_app(Settings(**settings), source=self.source))

    def __enter__(self) -> OnDemand:
        super().__enter__()
        self.wait_until_loaded()
        return self

    def predict(self, name: str, **headers: str) -> httpx.Response:
        return self.post(f"/models/{name}/predict", BODY, headers=headers)

    def in_memory(self) -> list[str]:
        return [each["name"] for each in self.get("/models").json()["models"] if each["loaded"]]

    def look(self, *found: Found) -> None:
        """Has it find something else."""
        self.source.found = found
        self.state["parts"].watcher.reload().result(20)

    def gate(self) -> AbstractContextManager[threading.Event]:
        return _Gate(self.source)


class _Gate:
    """Loads wait until it is opened."""

    def __init__(self, source: FakeSource) -> None:
        self.source, self.open = source, threading.Event()

    def __enter__(self) -> threading.Event:
        self.source.before = lambda: self.open.wait(20)  # type: ignore[assignment]
        return self.open

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self.source.before = lambda: None


MODELS = tuple(FakeModel(name) for name in ("a", "b", "c", "d"))


@pytest.fixture
def service() -> Iterator[OnDemand]:
    with OnDemand(*MODELS) as made:
        yield made


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_the_start_loads_one_model_and_a_request_the_one_it_names(service: OnDemand) -> None:
    assert service.source.loads == [("a", "1")]
    assert service.get("/readyz").json()["models"] == ["a", "b", "c", "d"]
    answer = service.predict("c")
    assert answer.json()["model"] == {"name": "c", "version": "1"}
    service.predict("d")
    service.predict("c")
    assert service.in_memory() == ["c", "d"]
    assert service.source.loads == [("a", "1"), ("c", "1"), ("d", "1")]


def test_the_list_has_all_and_says_nothing_of_what_is_not_in_memory(service: OnDemand) -> None:
    loaded, listed, *_ = service.get("/models").json()["models"]
    assert loaded["loaded"]
    assert loaded["target"]["name"] == "Consumption"
    assert loaded["loaded_since"] is not None
    unknown = {"task": None, "target": None, "metrics": None, "loaded_since": None}
    assert {key: listed[key] for key in unknown} == unknown
    assert (listed["name"], listed["loaded"], listed["versions"]) == ("b", False, ["1"])


@pytest.mark.parametrize("path", ["/models/{}", "/models/{}/versions/1", "/models/{}/calibration", "/v2/models/{}"])
def test_who_asks_about_a_model_has_it_loaded(service: OnDemand, path: str) -> None:
    assert service.get(path.format("b")).json()["name"] == "b"
    assert ("b", "1") in service.source.loads


def test_what_needs_no_tensors_loads_nothing(service: OnDemand) -> None:
    assert service.get("/v2/models/b/ready").json()["ready"]
    assert service.get("/v2/models/b/stats").status_code == 200
    assert service.get("/v2/models/stats").status_code == 200
    assert service.get("/openapi.json").status_code == 200
    index = service.post("/v2/repository/index", {"ready": True}).json()
    assert [each["name"] for each in index] == ["a", "b", "c", "d"]
    assert [bool(each["reason"]) for each in index] == [False, True, True, True]
    assert len(service.source.loads) == 1


def test_requests_at_the_same_time_share_a_load(service: OnDemand) -> None:
    with service.gate() as gate, ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(service.predict, "b") for _ in range(8)]
        until(lambda: len(service.source.loads) == 2 or service.state["parts"].lifecycle.in_flight == 8)
        gate.set()
        assert {answer.result(20).status_code for answer in answers} == {200}
    assert service.source.loads.count(("b", "1")) == 1


def test_a_damaged_model_refuses_itself_alone_and_is_tried_once() -> None:
    with OnDemand(FakeModel("a"), ("b", "1", "wrong hash"), FakeModel("c")) as service:
        for _ in range(3):
            answer = service.predict("b")
            assert (answer.status_code, answer.json()["detail"]) == (404, "b version 1 was refused: wrong hash")
        assert service.source.loads.count(("b", "1")) == 1
        assert service.predict("c").status_code == 200
        assert [each["name"] for each in service.get("/models").json()["refused"]] == ["b"]
        service.look(FakeModel("a"), FakeModel("b"), FakeModel("c"))
        assert service.predict("b").status_code == 200


def test_the_version_before_takes_the_place_of_a_damaged_one() -> None:
    with OnDemand(FakeModel("a"), FakeModel("b"), ("b", "2", "wrong hash")) as service:
        assert service.predict("b").json()["model"]["version"] == "1"
        assert service.get("/models/b/versions/2").json()["detail"] == "b version 2 was refused: wrong hash"


def test_of_all_versions_only_what_is_asked_for_is_loaded() -> None:
    with OnDemand(*(FakeModel("a", str(number)) for number in range(1, 5)), versions="all") as service:
        assert service.source.loads == [("a", "4")]
        assert service.post("/models/a/versions/2/predict", BODY).json()["model"]["version"] == "2"
        assert service.source.loads == [("a", "4"), ("a", "2")]


def test_a_pinned_version_is_the_one_that_is_loaded() -> None:
    found = (FakeModel("a"), FakeModel("b"), FakeModel("b", "2"))
    with OnDemand(*found, versions="pinned", pinned="b=1") as service:
        assert service.predict("b").json()["model"]["version"] == "1"


def test_the_default_model_is_loaded_when_it_is_asked_for() -> None:
    with OnDemand(*MODELS, default_model="c") as service:
        assert service.post("/predict", BODY).json()["model"]["name"] == "c"


def test_a_new_version_is_loaded_at_once_only_where_one_is_in_memory(service: OnDemand) -> None:
    service.look(FakeModel("a", "2"), FakeModel("b", "2"))
    assert service.source.loads == [("a", "1"), ("a", "2")]
    assert service.predict("b").json()["model"]["version"] == "2"
    service.look(FakeModel("a", "2"), service.source.found[1], ("b", "3", "wrong hash"))
    assert service.predict("b").json()["model"]["version"] == "2"


def test_what_was_replaced_by_a_bad_version_serves_until_it_leaves_the_memory() -> None:
    found = (FakeModel("a"), FakeModel("b"))
    with OnDemand(*found, loaded_models=1) as service:
        service.look(("a", "1", "wrong hash"), found[1])
        assert service.predict("a").status_code == 200
        service.predict("b")
        assert service.predict("a").json()["detail"] == "a version 1 was refused: wrong hash"


def test_loading_by_hand_checks_the_version_and_leaves_what_served() -> None:
    with OnDemand(FakeModel("a"), FakeModel("b"), ("b", "2", "wrong hash"), versions="pinned", pinned="b=1") as service:
        answer = service.post("/models/b/load?version=2")
        assert answer.status_code == 422
        assert answer.json()["detail"] == "b version 2 was refused: wrong hash. Version 1 is served on."
        assert service.predict("b").json()["model"]["version"] == "1"
        assert service.post("/models/b/unload").json()["unloaded"] == ["1"]
        assert service.predict("b").status_code == 404
        assert service.in_memory() == ["a"]
        assert service.post("/models/b/load").json()["version"] == "1"
        assert service.in_memory() == ["a", "b"]


def test_a_request_that_was_in_flight_ends_on_the_model_that_was_unloaded(service: OnDemand) -> None:
    with service.gate() as gate, ThreadPoolExecutor(1) as clients:
        answer = clients.submit(service.predict, "b")
        until(lambda: service.source.loads.count(("b", "1")) == 0 and service.state["parts"].lifecycle.in_flight == 1)
        service.post("/models/b/unload")
        gate.set()
        assert answer.result(20).json()["model"]["name"] == "b"
    assert service.in_memory() == ["a"]


@pytest.mark.parametrize(
    "said",
    [
        {"json": BODY, "headers": {"x-request-timeout": "0.05"}},
        {"json": {**BODY, "timeout": 0.05}},
        {"content": "Weight\n3000", "params": {"timeout": "0.05"}, "headers": {"content-type": "text/csv"}},
    ],
    ids=["header", "body", "query"],
)
def test_a_wait_ends_at_the_requests_own_time(service: OnDemand, said: dict[str, Any]) -> None:
    with service.gate():
        answer = service.post("/models/b/predict", **said)
    assert answer.status_code == 504
    assert "b version 1 isn't loaded" in answer.json()["detail"]


@pytest.mark.parametrize("timeout", [-1, "soon", None, [], {}, True])
def test_a_timeout_that_is_none_is_refused_once_the_model_is_there(service: OnDemand, timeout: object) -> None:
    answer = service.post("/models/b/predict", {**BODY, "timeout": timeout})
    assert answer.status_code == (200 if timeout is None else 422)


def test_too_many_who_wait_are_refused() -> None:
    with OnDemand(*MODELS, max_pending=1) as service, ThreadPoolExecutor(1) as clients:
        with service.gate() as gate:
            waits = clients.submit(service.predict, "b")
            until(lambda: service.state["parts"].telemetry.loading._cache.loads == 1)
            answer = service.predict("c")
            gate.set()
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert waits.result(20).status_code == 200


def test_a_client_that_leaves_stops_waiting(service: OnDemand) -> None:
    parts = service.state["parts"]

    async def ask_and_leave() -> None:
        served = parts.registry.snapshot.find("b")

        async def receive() -> dict[str, str]:
            await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

        with pytest.raises(Exception, match="closed the connection"):
            await parts.models.hold(served, lambda snapshot: snapshot.find("b"), float("inf"), receive)

    with service.gate():
        service.portal.call(ask_and_leave)
        assert parts.models._waiting == 0
    assert service.predict("b").status_code == 200


def test_a_storage_that_can_not_be_reached_is_no_fault_of_the_version(service: OnDemand) -> None:
    def fail() -> None:
        raise StorageError("s3://bucket: no answer")

    service.source.before = fail
    answer = service.predict("b")
    assert (answer.status_code, "can't be loaded now: s3://bucket" in answer.json()["detail"]) == (503, True)
    service.source.before = lambda: None
    assert service.predict("b").status_code == 200


def test_a_directory_that_is_gone_for_a_while_takes_no_model_out_of_service(tmp_path: Path) -> None:
    root = tmp_path / "models"
    for name in "ab":
        shutil.copytree(RENTS, root / name / "1")
    settings = Settings(checkpoints=root, loaded_models=1, watch_seconds=0, log_level="error")
    with AppClient(create_app(settings)) as service:
        service.wait_until_loaded()
        root.rename(tmp_path / "away")
        assert service.get("/models/b").status_code == 503
        assert service.get("/readyz").status_code == 200
        (tmp_path / "away").rename(root)
        assert service.get("/models/b").json()["name"] == "b"


def test_metrics_say_what_is_in_memory_and_what_came_and_went(service: OnDemand) -> None:
    for name in "bcd":
        service.predict(name)
    lines = service.get("/metrics").text.splitlines()
    for line in ("murho_loaded_models 2.0", "murho_pending_loads 0.0", "murho_evictions_total 2.0"):
        assert line in lines
    assert 'murho_loads_total{outcome="loaded"} 4.0' in lines
    assert "murho_load_seconds_count 4.0" in lines


def test_without_the_setting_all_are_in_memory() -> None:
    with OnDemand(*MODELS, loaded_models=0) as service:
        assert service.in_memory() == ["a", "b", "c", "d"]
        assert "murho_loaded_models 4.0" in service.get("/metrics").text


def test_a_message_names_the_first_models_of_many() -> None:
    with OnDemand(*(FakeModel(f"m{number:02}") for number in range(15))) as service:
        assert service.predict("x").json()["detail"].endswith("m08, m09 and 5 more.")
