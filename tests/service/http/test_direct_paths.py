from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from murho.service.engine.scheduler import Scheduler
from murho.service.errors import QueueFullError
from murho.service.http import health_routes as health
from murho.service.http.loop_pauses import LoopPauses
from murho.service.predict import routes as predict
from murho.service.protocols import invocations_routes as invocations
from murho.service.protocols import v2_routes as v2
from tests.service.support import ROW

if TYPE_CHECKING:
    from tests.service.support import AppClient


@pytest.mark.parametrize(
    ("find", "path", "template"),
    [
        (predict.find, "/predict", "/predict"),
        (predict.find, "/models/a/predict", "/models/{name}/predict"),
        (predict.find, "/models/a/versions/1/predict", "/models/{name}/versions/{version}/predict"),
        (predict.find, "/models//predict", None),
        (predict.find, "/predict/", None),
        (predict.find, "/models/a/versions//predict", None),
        (v2.find, "/v2/models/a/infer", "/v2/models/{name}/infer"),
        (v2.find, "/v2/models/a/versions/1/infer", "/v2/models/{name}/versions/{version}/infer"),
        (v2.find, "/v2/models//infer", None),
        (v2.find, "/v2/models/a", None),
        (invocations.find, "/invocations", "/invocations"),
        (invocations.find, "/invocations/", None),
        (health.find, "/healthz", "/healthz"),
        (health.find, "/readyz", "/readyz"),
        (health.find, "/metrics", None),
    ],
)
def test_a_protocol_finds_its_own_paths(find: Any, path: str, template: str | None) -> None:
    found = find(path)
    assert (None if found is None else found[0]) == template


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/models/cars/predict", "/models/{name}/predict"),
        ("/v2/models/cars/infer", "/v2/models/{name}/infer"),
        ("/invocations", "/invocations"),
    ],
)
def test_metrics_know_the_template_and_not_the_path(client: AppClient, path: str, template: str) -> None:
    client.post(path, {"inputs": [ROW]})
    assert f'route="{template}"' in client.get("/metrics").text
    assert path == template or f'route="{path}"' not in client.get("/metrics").text


def test_a_full_queue_makes_the_loop_pause_and_another_refusal_does_not(
    client: AppClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = threading.Event()
    monkeypatch.setattr(LoopPauses, "_pause", lambda _: paused.set())
    assert client.post("/predict", {"inputs": []}).status_code == 422
    assert not paused.wait(0.05)

    def full(*_: object) -> None:
        raise QueueFullError("Try again later.", retry_after=1)

    monkeypatch.setattr(Scheduler, "require_room", full)
    assert client.post("/predict", {"inputs": [ROW]}).status_code == 429
    assert paused.wait(60.0)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_the_same_by_either_way(client: AppClient, path: str) -> None:
    direct, framework = client.get(path), client.request("HEAD", path)
    assert (direct.status_code, framework.status_code) == (200, 200)
    assert direct.headers["content-type"] == framework.headers["content-type"] == "application/json"
    assert direct.headers["content-length"] == framework.headers["content-length"]
    assert client.post(path).status_code == 405


def test_other_methods_are_answered_by_the_framework(client: AppClient) -> None:
    for path in ("/predict", "/invocations", "/v2/models/cars/infer"):
        response = client.get(path)
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
