from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from murho.service.app import create_app
from murho.service.settings import Settings
from tests.service.protocols.support import NUMBERS, error_of, infer, row_tensors
from tests.service.support import ROW, AppClient, FakeModel, FakeSource, make_client

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def client() -> Iterator[AppClient]:
    source = FakeSource(
        FakeModel(version="1"),
        FakeModel(version="2"),
        FakeModel("numbers", schema=NUMBERS),
        ("boats", "4", "wrong hash"),
    )
    with AppClient(create_app(Settings(watch_seconds=0), source=source)) as client:
        yield client


def test_the_server_tells_of_itself(client: AppClient) -> None:
    for path in ("/v2", "/v2/"):
        document = client.get(path).json()
        assert set(document) == {"name", "version", "extensions"}
        assert {"binary_tensor_data", "model_repository", "statistics"} <= set(document["extensions"])
    assert client.get("/v2/health/live").json()["live"] is True
    assert client.get("/v2/health/ready").json()["ready"] is True
    assert client.get("/v2/models/cars/ready").json() == {"name": "cars", "ready": True}
    assert client.get("/v2/models/cars/versions/2/ready").status_code == 200
    assert "is not served" in error_of(client.get("/v2/models/cars/versions/1/ready"), 404)


def test_a_model_has_an_input_for_each_feature(client: AppClient) -> None:
    document = client.get("/v2/models/cars").json()
    assert document == client.get("/v2/models/cars/versions/2").json()
    assert document["versions"] == ["2"]
    assert document["platform"] == "murho_safetensors"
    assert {tensor["name"]: tensor["datatype"] for tensor in document["inputs"]} == {
        "Weight": "FP64",
        "Horsepower": "FP64",
        "Automatic": "BOOL",
        "Year": "BYTES",
        "Origin/plant": "BYTES",
    }
    assert [(tensor["name"], tensor["shape"]) for tensor in document["outputs"]] == [
        ("mean", [-1]),
        ("std", [-1]),
        ("epistemic_std", [-1]),
        ("aleatoric_std", [-1]),
        ("percentiles", [-1, -1]),
    ]
    assert all(isinstance(value, str) for value in document["properties"].values())
    inputs = [tensor | {"shape": [1], "data": [ROW[tensor["name"]]]} for tensor in document["inputs"]]
    assert (
        infer(client, inputs, outputs=[{"name": tensor["name"]} for tensor in document["outputs"]]).status_code == 200
    )


def test_a_model_of_numbers_has_one_matrix(client: AppClient) -> None:
    document = client.get("/v2/models/numbers").json()
    assert document["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1, 3]}]


def test_the_repository_lists_what_is_there_and_why_it_is_not_served(client: AppClient) -> None:
    client.post("/v2/repository/models/numbers/unload")
    listed = client.post("/v2/repository/index").json()
    assert [(item["name"], item["version"], item["state"]) for item in listed] == [
        ("boats", "4", "UNAVAILABLE"),
        ("cars", "1", "UNAVAILABLE"),
        ("cars", "2", "READY"),
        ("numbers", "", "UNAVAILABLE"),
    ]
    assert listed[0]["reason"] == "wrong hash"
    ready = client.post("/v2/repository/index", {"ready": True}).json()
    assert [(item["name"], item["version"]) for item in ready] == [("cars", "2")]


def test_a_model_is_loaded_and_unloaded(client: AppClient) -> None:
    bodies: list[dict[str, Any]] = [{}, {"parameters": {}}, {"parameters": {"version": "1"}}]
    for body in bodies:
        response = client.post("/v2/repository/models/cars/load", body)
        assert (response.status_code, response.content) == (200, b"")
    assert client.get("/v2/models/cars").json()["versions"] == ["1"]
    response = client.post("/v2/repository/models/cars/unload", {"parameters": {"unload_dependents": False}})
    assert (response.status_code, response.content) == (200, b"")
    assert "was unloaded" in error_of(client.get("/v2/models/cars/ready"), 404)
    assert "wrong hash" in error_of(client.post("/v2/repository/models/boats/load"))
    assert "There is no model 'trucks'" in error_of(client.post("/v2/repository/models/trucks/load"), 404)


@pytest.mark.parametrize(
    ("path", "document", "said"),
    [
        ("/v2/repository/index", {"redy": True}, "/redy: There is no key 'redy' here"),
        ("/v2/repository/models/cars/load", {"parameters": {"config": "{}"}}, "/parameters/config: There is no key"),
        (
            "/v2/repository/models/cars/load",
            {"parameters": {"version": 2}},
            "/parameters/version: Expected a string",
        ),
        ("/v2/repository/models/cars/unload", {"parameters": {"a": 1}}, "/parameters/a: There is no key"),
    ],
)
def test_other_bodies_of_the_repository_are_refused(client: AppClient, path: str, document: Any, said: str) -> None:
    assert error_of(client.post(path, content=json.dumps(document))).startswith(said)


def test_statistics_count_what_was_done_by_every_protocol(client: AppClient) -> None:
    infer(client, row_tensors(3))
    client.post("/models/cars/predict", {"inputs": [ROW]})
    infer(client, [])
    (stats,) = client.get("/v2/models/cars/stats").json()["model_stats"]
    assert (stats["name"], stats["version"]) == ("cars", "2")
    assert (stats["inference_count"], stats["execution_count"]) == (4, 2)
    assert stats["last_inference"] > 1.7e12
    counts = {name: item["count"] for name, item in stats["inference_stats"].items()}
    assert counts == {
        "success": 2,
        "fail": 1,
        "queue": 2,
        "compute_infer": 2,
        "compute_input": 0,
        "compute_output": 0,
        "cache_hit": 0,
        "cache_miss": 0,
    }
    assert stats["inference_stats"]["success"]["ns"] >= stats["inference_stats"]["compute_infer"]["ns"] > 0
    assert [(batch["batch_size"], batch["compute_infer"]["count"]) for batch in stats["batch_stats"]] == [
        (1, 1),
        (4, 1),
    ]
    listed = client.get("/v2/models/stats").json()["model_stats"]
    assert [item["name"] for item in listed] == ["cars", "numbers"]
    assert client.get("/v2/models/cars/versions/2/stats").json()["model_stats"] == [stats]
    error_of(client.get("/v2/models/cars/versions/9/stats"), 404)


def test_every_error_has_the_protocols_form(client: AppClient) -> None:
    error_of(client.get("/v2/nothing"), 404)
    error_of(client.get("/v2/models/cars/infer"), 405)
    error_of(client.post("/v2/models/trucks/infer", {}), 404)
    error_of(client.post("/v2/models/cars/infer", content=b"{}", headers={"content-encoding": "br"}), 415)
    error_of(client.post("/v2/models/cars/infer", content=b"{}", headers={"content-encoding": "deflate"}))
    response = client.post("/v2", {})
    assert response.headers["allow"] == "GET"
    error_of(response, 405)


def test_more_than_ten_problems_are_cut(client: AppClient) -> None:
    error = error_of(infer(client, row_tensors(30, Weight={"data": [None] * 30})))
    assert error.count("isn't accepted") == 10
    assert error.endswith("And 20 more.")


def test_a_service_that_is_not_ready_says_so() -> None:
    with make_client() as client:
        assert client.get("/v2/health/live").status_code == 200
        for path in ("/v2/health/ready", "/v2/models/stats", "/v2/models/cars", "/v2/models/cars/ready"):
            assert "There is no checkpoint" in error_of(client.get(path), 503)
        response = infer(client, row_tensors())
        assert int(response.headers["retry-after"]) > 0
        error_of(response, 503)


def test_a_failure_of_the_service_is_an_error_without_its_reason() -> None:
    model = FakeModel()

    def fail() -> None:
        raise RuntimeError("secret")

    model.before = fail
    with make_client(model) as client:
        error = error_of(infer(client, row_tensors()), 500)
    assert "secret" not in error
    assert "an error of the service" in error
