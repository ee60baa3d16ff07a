from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from murho.service.app import create_app
from murho.service.settings import Settings
from tests.service.support import ROW, AppClient, FakeModel, FakeSource, make_client, pointers

if TYPE_CHECKING:
    import pytest


def test_while_loading_the_service_is_alive_but_not_ready() -> None:
    loading = threading.Event()
    source = FakeSource(FakeModel())

    def wait() -> None:
        assert loading.wait(20)

    source.before = wait
    with AppClient(create_app(Settings(), source=source)) as client:
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
        assert client.get("/readyz").json() == {"status": "ready", "models": ["cars"]}


def test_without_a_checkpoint_the_service_says_what_to_do() -> None:
    with make_client() as client:
        client.wait_until_loaded()
        assert client.get("/healthz").status_code == 200
        response = client.get("/readyz")
        assert response.status_code == 503
        assert "retry-after" in response.headers
        assert "murho train DATA --target COLUMN" in response.json()["detail"]


def test_a_draining_service_is_alive_but_not_ready_and_still_serves(client: AppClient) -> None:
    client.state["parts"].lifecycle.draining = True
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503
    assert client.post("/predict", {"inputs": [ROW]}).status_code == 200


def test_metrics_are_in_the_text_format(client: AppClient) -> None:
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    assert "murho_ready 1.0" in response.text


def test_a_service_whose_engine_is_silent_is_not_alive(model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    with make_client(model, engine_silence=5.0) as client:
        client.wait_until_loaded()
        heart = client.state["parts"].heartbeat
        monkeypatch.setattr(heart, "_clock", lambda: now[0])
        heart.busy()
        now[0] += 6.0
        response = client.get("/healthz")
        assert response.status_code == 503
        assert pointers(response) == []
        assert "no sign of life" in response.json()["detail"]
        assert client.get("/readyz").status_code == 200
        heart.beat()
        assert client.get("/healthz").status_code == 200
        heart.idle()
        now[0] += 6.0
        assert client.get("/healthz").status_code == 200
