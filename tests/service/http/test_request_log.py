from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.service.support import ROW, AppClient, FakeModel, make_client, pointers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture
def small() -> Iterator[AppClient]:
    with make_client(FakeModel(), max_body_bytes=1000) as client:
        client.wait_until_loaded()
        yield client


def test_every_answer_has_a_request_id(client: AppClient) -> None:
    first, second = (client.get("/healthz").headers["x-request-id"] for _ in range(2))
    assert first != second


def test_a_plain_request_id_of_the_client_is_kept(client: AppClient) -> None:
    assert client.get("/healthz", headers={"x-request-id": "trace-7"}).headers["x-request-id"] == "trace-7"


@pytest.mark.parametrize("given", ["a b", "x" * 200, "<script>", ""])
def test_any_other_request_id_is_replaced(client: AppClient, given: str) -> None:
    assert client.get("/healthz", headers={"x-request-id": given}).headers["x-request-id"] != given


def test_a_body_that_announces_too_much_is_refused(small: AppClient) -> None:
    response = small.post("/predict", content=b" " * 1001)
    assert response.status_code == 413
    assert pointers(response) == []
    assert "1000 bytes" in response.json()["detail"]


def test_a_body_in_chunks_is_refused_at_the_limit(small: AppClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100

    assert small.post("/predict", content=chunks()).status_code == 413


def test_a_body_at_the_limit_is_read(small: AppClient) -> None:
    assert small.post("/predict", content=b" " * 1000).status_code == 422


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


def test_so_is_a_failure_within_the_framework(client: AppClient) -> None:
    client.state["parts"].registry.snapshot = None
    response = client.get("/models")
    assert (response.status_code, response.headers["content-type"]) == (500, "application/problem+json")
    assert response.json()["type"] == "urn:murho:problem:internal"
    assert response.headers["x-request-id"] in response.json()["detail"]
