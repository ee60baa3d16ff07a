from __future__ import annotations

from collections.abc import Iterator

import pytest

from murho.service.app import create_app
from murho.service.settings import Settings
from tests.service.support import ROW, AppClient, FakeModel, FakeSource, pointers


@pytest.fixture
def source() -> FakeSource:
    return FakeSource(FakeModel(version="1"), FakeModel(version="2"), ("boats", "4", "wrong hash"))


@pytest.fixture
def client(source: FakeSource) -> Iterator[AppClient]:
    with AppClient(create_app(Settings(watch_seconds=0), source=source)) as client:
        yield client


def version_of(client: AppClient) -> str:
    answer = client.post("/models/cars/predict", {"inputs": [ROW]})
    assert answer.status_code == 200
    return str(answer.json()["model"]["version"])


def test_a_version_is_loaded_and_the_policy_taken_up_again(client: AppClient) -> None:
    assert version_of(client) == "2"
    answer = client.post("/models/cars/load?version=1")
    assert answer.status_code == 200
    assert answer.json() == {
        "name": "cars",
        "version": "1",
        "versions": ["1"],
        "changed": True,
        "until": "the next load without a version, or the next start of the service",
        "refused": [],
    }
    assert version_of(client) == "1"
    assert client.post("/models/cars/load").json()["version"] == "2"
    assert client.post("/models/cars/load").json()["changed"] is False
    assert version_of(client) == "2"


def test_a_model_is_unloaded_and_loaded_again(client: AppClient) -> None:
    answer = client.post("/models/cars/unload").json()
    assert answer["unloaded"] == ["2"]
    assert "POST /models/cars/load" in answer["until"]
    assert client.get("/models").json()["unloaded"] == ["cars"]
    assert client.get("/readyz").status_code == 503
    assert client.post("/models/cars/unload").json()["changed"] is False
    assert client.post("/models/cars/load").json()["changed"] is True
    assert version_of(client) == "2"
    text = client.get("/metrics").text
    assert 'murho_reloads_total{outcome="loaded"} 2.0' in text
    assert 'murho_reloads_total{outcome="unloaded"} 1.0' in text
    assert 'murho_reloads_total{outcome="refused"} 1.0' in text


def test_what_is_not_there_is_404(client: AppClient) -> None:
    for path in ("/models/trucks/load", "/models/trucks/unload", "/models/cars/load?version=9"):
        response = client.post(path)
        assert pointers(response, 404) == []


def test_what_can_not_be_loaded_is_422_with_the_reason(client: AppClient) -> None:
    response = client.post("/models/boats/load")
    assert pointers(response, 422) == []
    assert response.json()["type"] == "urn:murho:problem:checkpoint-refused"
    assert "boats version 4 was refused: wrong hash" in response.json()["detail"]


def test_the_answer_says_which_version_is_not_served(client: AppClient, source: FakeSource) -> None:
    client.post("/models/cars/unload")
    source.found = (*source.found, ("cars", "3", "wrong hash"))
    answer = client.post("/models/cars/load").json()
    assert (answer["version"], answer["refused"]) == ("2", [{"version": "3", "reason": "wrong hash"}])


@pytest.mark.parametrize("query", ["version=1&version=2", "versions=1", "version=1&now=true"])
def test_another_parameter_is_an_error(client: AppClient, query: str) -> None:
    assert client.post(f"/models/cars/load?{query}").status_code == 422


def test_the_list_tells_since_when_and_what_else_is_there(client: AppClient) -> None:
    (listed,) = client.get("/models").json()["models"]
    assert (listed["versions"], listed["not_served"]) == (["2"], ["1"])
    assert listed["loaded_since"].endswith("+00:00")
    response = client.post("/models/cars/versions/1/predict", {"inputs": [ROW]})
    assert response.status_code == 404
    assert "MURHO_VERSIONS=all" in response.json()["detail"]
