from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.service.support import ROW, AppClient, FakeModel, make_client
from tests.service.test_callers import ADMIN, KEY, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = (stored("web", KEY), stored("ops", ADMIN, ":admin"))
WEB = {"authorization": f"Bearer {KEY}"}


@pytest.fixture
def guarded() -> Iterator[AppClient]:
    with make_client(FakeModel(), api_keys=KEYS, open_paths=("/metrics",)) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    ["/models", "/models/cars/overview", "/docs", "/openapi.json", "/nothing", "/predict", "/models/cars/predict"],
)
def test_without_a_key_every_path_is_closed(guarded: AppClient, path: str) -> None:
    for method in ("GET", "POST", "PUT", "HEAD"):
        response = guarded.request(method, path, content=b"{" if method == "POST" else None)
        assert response.status_code == 401, method
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["content-type"] == "application/problem+json"


def test_health_and_what_settings_open_need_none(guarded: AppClient) -> None:
    assert [guarded.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 200]


def test_a_key_opens_the_service(guarded: AppClient) -> None:
    assert guarded.get("/models", headers=WEB).status_code == 200
    assert guarded.get("/models", headers={"x-api-key": KEY}).status_code == 200
    assert guarded.post("/predict", {"inputs": [ROW]}, headers=WEB).status_code == 200


def test_the_body_of_a_stranger_is_not_read(guarded: AppClient) -> None:
    read = False

    async def body() -> object:
        nonlocal read
        read = True
        yield b"{}"

    assert guarded.post("/predict", content=body()).status_code == 401
    # httpx's in-process transport sends a body only when the application asks for it.
    assert not read


def test_the_description_shows_how_to_send_a_key(guarded: AppClient) -> None:
    document = guarded.get("/openapi.json", headers=WEB).json()
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    predict, alive = document["paths"]["/predict"]["post"], document["paths"]["/healthz"]["get"]
    assert predict["security"] == [{"bearer": []}, {"header": []}]
    assert "401" in predict["responses"]
    assert "security" not in alive
    assert "401" not in alive["responses"]


def test_too_many_requests_of_a_caller_are_told_when_to_come_back() -> None:
    with make_client(FakeModel(), requests_per_second=0.1, burst_seconds=20) as client:
        statuses = [client.get("/models").status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        response = client.get("/models")
        assert response.json()["type"] == "urn:murho:problem:rate-limited"
        assert int(response.headers["retry-after"]) in (9, 10)
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/predict", {"headers": {"content-type": "application/json"}}),
        ("/predict", {"headers": {"content-type": "text/csv", "content-length": "x"}}),
        ("/invocations", {"headers": {"content-type": "application/json"}}),
        ("/v2/models/cars/infer", {}),
    ],
)
def test_a_refused_body_costs_its_caller_something(path: str, sent: dict[str, Any]) -> None:
    with make_client(FakeModel(), row_draws_per_second=1000, burst_seconds=1) as client:
        body = b'"' * 2**23
        refused = client.post(path, content=body, **sent)
        assert refused.status_code in {400, 413, 422}
        response = client.post(path, content=body, **sent)
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) == pytest.approx(2**23 / 16 / 1000, rel=0.02)
