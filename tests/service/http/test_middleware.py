from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from murho.service.engine.scheduler import Admission
from murho.service.errors import QueueFullError
from murho.service.http.middleware import LoopPauses, Paths
from tests.service.support import ROW, AppClient, FakeModel, make_client, pointers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.mark.parametrize(
    ("path", "template", "named"),
    [
        ("/predict", "/predict", ()),
        ("/models/a/predict", "/models/{name}/predict", ("a",)),
        ("/models/a/versions/1/predict", "/models/{name}/versions/{version}/predict", ("a", "1")),
        ("/models//predict", None, ()),
        ("/predict/", None, ()),
        ("/v2/models/a/infer", "/v2/models/{name}/infer", ("a",)),
        ("/invocations", "/invocations", ()),
    ],
)
def test_predictions_do_not_go_through_the_framework(path: str, template: str | None, named: tuple[str, ...]) -> None:
    found = _paths().find("POST", path)
    assert (None if found is None else (found[0].path, tuple(found[1].values()))) == (
        None if template is None else (template, named)
    )


def _paths() -> Paths:
    layer: Any = make_client(FakeModel()).app
    layer = layer.middleware_stack
    while not isinstance(layer, Paths):
        layer = layer.app
    return layer


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

    monkeypatch.setattr(Admission, "require_room", full)
    assert client.post("/predict", {"inputs": [ROW]}).status_code == 429
    assert paused.wait(60.0)


def test_other_methods_are_answered_by_the_framework(client: AppClient) -> None:
    for path in ("/predict", "/invocations", "/v2/models/cars/infer"):
        response = client.get(path)
        assert (response.status_code, response.headers["allow"]) == (405, "POST")


@pytest.fixture
def small() -> Iterator[AppClient]:
    with make_client(FakeModel(), max_body_bytes=1000) as client:
        yield client


def test_every_answer_has_a_request_id(client: AppClient) -> None:
    first, second = (client.get("/healthz").headers["x-request-id"] for _ in range(2))
    assert first != second


@pytest.mark.parametrize("given", ["a b", "x" * 200, "<script>", ""])
def test_any_other_request_id_is_replaced(client: AppClient, given: str) -> None:
    assert client.get("/healthz", headers={"x-request-id": given}).headers["x-request-id"] != given


def test_a_body_in_chunks_is_refused_at_the_limit(small: AppClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100

    assert small.post("/predict", content=chunks()).status_code == 413


@pytest.mark.parametrize("length", ["9" * 1000, "-1", "x", "1e9"])
def test_a_senseless_length_is_no_failure(small: AppClient, length: str) -> None:
    assert small.post("/predict", content=b"{}", headers={"content-length": length}).status_code in {413, 422}


def test_a_failure_of_the_service_is_answered_without_a_trace(client: AppClient, model: FakeModel) -> None:
    def fail() -> None:
        raise ZeroDivisionError("secret")

    model.before = fail
    response = client.post("/predict", {"inputs": [ROW]})
    assert response.status_code == 500
    assert pointers(response) == []
    assert response.headers["x-request-id"] in response.json()["detail"]
    assert "secret" not in response.text
    assert "Traceback" not in response.text


def test_a_body_that_announces_too_much_is_refused(small: AppClient) -> None:
    response = small.post("/predict", content=b" " * 1001)
    assert response.status_code == 413
    assert pointers(response) == []
    assert "1000 bytes" in response.json()["detail"]


def test_so_is_a_failure_within_the_framework(client: AppClient) -> None:
    client.state["parts"].registry.snapshot = None
    response = client.get("/models")
    assert (response.status_code, response.headers["content-type"]) == (500, "application/problem+json")
    assert response.json()["type"] == "urn:murho:problem:internal"
    assert response.headers["x-request-id"] in response.json()["detail"]
