from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from murho.service.app import create_app
from murho.service.models.loader import Snapshot
from murho.service.settings import Settings
from tests.service.support import ROW, AppClient, FakeModel, FakeSource, make_client, pointers


def test_importing_the_application_imports_no_torch() -> None:
    # The service answers /healthz while torch is still being imported by the thread that loads the checkpoints.
    code = "import sys, murho.service.process; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


FIRST_CALLS = """
import sys, tempfile
from tests.service.support import ROW, FakeModel, make_client

with make_client(FakeModel(), store=f"{tempfile.mkdtemp()}/store") as client:
    client.get("/readyz").raise_for_status()
    before = set(sys.modules)
    action = {"id": "a", "inputs": {"Weight": ROW["Weight"]}}
    rest = {name: ROW[name] for name in ROW if name != "Weight"}
    posts = {
        "predict": {"inputs": [ROW], "ids": ["a"]},
        "aggregate": {"inputs": [ROW]},
        "decide": {"contexts": [rest], "actions": [action]},
        "counterfactual": {"inputs": ROW, "goal": {"mean": {"at_least": 3}}},
        "outcomes": {"outcomes": [{"id": "a", "value": 20.0}]},
    }
    tensors = client.get("/v2/models/cars").json()["inputs"]
    inputs = [{**each, "shape": [1], "data": [ROW[each["name"]]]} for each in tensors]
    answers = [client.post(f"/models/cars/{name}", body) for name, body in posts.items()]
    answers.append(client.post("/v2/models/cars/infer", {"inputs": inputs}))
    for path in ("", "/calibration", "/overview", "/charts", "/quality"):
        answers.append(client.get(f"/models/cars{path}"))
    for answer in answers:
        assert answer.status_code == 200, answer.text
    sys.exit(" ".join(name for name in sys.modules.keys() - before if name.startswith("murho.")) or None)
"""


def test_the_first_request_of_a_kind_imports_nothing() -> None:
    # To import in the event loop would hold up everybody: for half a second, where the machine is busy.
    done = subprocess.run([sys.executable, "-c", FIRST_CALLS], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_failure_to_load_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(threads: int) -> None:
        raise ImportError(f"no torch for {threads} threads")

    monkeypatch.setattr("murho.model.runtime.use_threads", fail)
    with make_client(FakeModel(), threads=3) as client:
        assert client.get("/healthz").status_code == 200
        response = client.get("/readyz")
        assert response.status_code == 503
        assert "ImportError: no torch for 3 threads" in response.json()["detail"]


def test_a_failure_to_announce_does_not_stop_the_service() -> None:
    def fail(_: Snapshot) -> None:
        raise BrokenPipeError

    with AppClient(create_app(Settings(), source=FakeSource(FakeModel()), on_loaded=fail)) as client:
        assert client.post("/predict", {"inputs": [ROW]}).status_code == 200


def test_while_loading_the_service_is_alive_but_not_ready() -> None:
    loading = threading.Event()
    source = FakeSource(FakeModel())

    def wait() -> None:
        assert loading.wait(20)

    source.before = wait
    with AppClient(create_app(Settings(), source=source), loaded=False) as client:
        try:
            assert client.get("/healthz").status_code == 200
            for response in (
                client.get("/readyz"),
                client.get("/models"),
                client.get("/models/cars"),
                client.post("/predict", {"inputs": [ROW]}),
            ):
                assert response.status_code == 503
                assert int(response.headers["retry-after"]) >= 1
                assert pointers(response) == []
        finally:
            loading.set()
        client.wait_until_loaded()
        assert client.get("/readyz").json() == {
            "status": "ready",
            "ready": True,
            "models": ["cars"],
            "model_count": 1,
            "refused": [],
            "refused_count": 0,
        }


def test_with_many_models_readiness_stays_short() -> None:
    """What a probe reads does not grow with the models; `/models` has all of them."""
    models = [FakeModel(f"m{number:04}") for number in range(500)]
    with make_client(*models) as client:
        ready = client.get("/readyz")
        found = ready.json()
        assert len(ready.content) < 1_000
        assert (found["models"], found["model_count"]) == ([f"m{number:04}" for number in range(10)], 500)
        text = client.get("/metrics").text
        assert "murho_served_versions 500.0" in text
        assert len(text) < 40_000  # the series of a model begin with its first request
        assert len(client.get("/models").json()["models"]) == 500


def test_without_a_checkpoint_the_service_says_what_to_do() -> None:
    with make_client() as client:
        assert client.get("/healthz").status_code == 200
        response = client.get("/readyz")
        assert response.status_code == 503
        assert "retry-after" in response.headers
        assert "murho train DATA --target COLUMN" in response.json()["detail"]


def test_a_draining_service_is_alive_but_not_ready_and_still_serves(client: AppClient) -> None:
    client.state["service"].lifecycle.draining = True
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503
    assert client.post("/predict", {"inputs": [ROW]}).status_code == 200


def test_a_service_whose_engine_is_silent_is_not_alive(model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    with make_client(model, engine_silence=5.0) as client:
        scheduler = client.state["service"].engine.scheduler
        monkeypatch.setattr(scheduler, "_busy_since", scheduler.clock() - 6.0)
        response = client.get("/healthz")
        assert pointers(response, 503) == []
        assert "no sign of life" in response.json()["detail"]
        assert client.get("/readyz").status_code == 200
        monkeypatch.setattr(scheduler, "_busy_since", scheduler.clock())
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("version", ["abc", "1..0", "1.x", ""])
def test_metrics_in_a_version_that_is_none_are_plain(client: AppClient, version: str) -> None:
    for kind in ("text/plain", "application/openmetrics-text"):
        assert client.get("/metrics", headers={"accept": f"{kind}; version={version}"}).status_code == 200
