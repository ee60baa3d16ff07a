from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from tests.service.support import NAMES, ROW, AppClient, FakeModel, make_client, pointers

KEYS = [
    *("model", "target", "samples", "seed", "mean", "std", "epistemic_std", "aleatoric_std"),
    *("percentiles", "calibrated", "extrapolation", "warnings"),
]
PATHS = ["/predict", "/models/cars/predict", "/models/cars/versions/1/predict"]


@pytest.mark.parametrize("path", PATHS)
def test_each_path_answers(client: AppClient, path: str) -> None:
    response = client.post(path, {"inputs": [ROW, ROW], "samples": 8, "seed": 3})
    assert response.status_code == 200
    answer = response.json()
    assert answer["model"] == {"name": "cars", "version": "1"}
    assert (answer["target"], answer["samples"], answer["seed"]) == ("Consumption", 8, 3)
    assert answer["mean"] == [130.0, 130.0]
    assert len(answer["percentiles"]["values"]) == 2
    assert answer["warnings"] == []
    assert list(answer) == KEYS


def test_what_was_asked_for_has_the_shape_of_rows_by_levels_thresholds_and_samples(client: AppClient) -> None:
    options = {
        "samples": 4,
        "percentiles": [5, 97.5, 50],
        "thresholds": [20.0, 130.0],
        "include": ["draws", "mc_error"],
    }
    answer = client.post("/predict", {"inputs": [ROW, ROW], **options}).json()
    assert list(answer) == [*KEYS[:-3], "exceedance", "draws", "mc_error", *KEYS[-3:]]
    assert answer["percentiles"]["levels"] == [5, 97.5, 50]
    assert answer["exceedance"]["thresholds"] == [20.0, 130.0]
    for name, columns in (("percentiles", 3), ("exceedance", 2)):
        assert np.shape(answer[name]["values"]) == (2, columns)
    assert answer["draws"][0] == [128.5, 129.5, 130.5, 131.5]
    assert {name: np.shape(of) for name, of in answer["mc_error"].items()} == {
        "mean": (2,),
        "std": (2,),
        "percentiles": (2, 3),
    }
    assert answer["mc_error"]["mean"] == [1.3, 1.3]


@pytest.mark.parametrize(
    ("inputs", "pointer"),
    [
        ([ROW, {**ROW, "Weight": 9000}], "/inputs/1/Weight"),
        ([[9000, None, True, None, "USA"]], "/inputs/0/0"),
        ({**{name: [ROW[name]] for name in NAMES}, "Origin/plant": ["Japan"]}, "/inputs/Origin~1plant/0"),
    ],
)
def test_values_outside_the_training_range_are_warned_of(client: AppClient, inputs: object, pointer: str) -> None:
    warnings = client.post("/predict", {"inputs": inputs}).json()["warnings"]
    assert [warning["pointer"] for warning in warnings] == [pointer]


def test_levels_that_look_like_shares_are_answered_with_a_hint(client: AppClient) -> None:
    answer = client.post("/predict", {"inputs": [ROW], "percentiles": [0.05, 0.5, 0.95]}).json()
    assert answer["percentiles"]["levels"] == [0.05, 0.5, 0.95]
    (warning,) = answer["warnings"]
    assert warning["pointer"] == "/percentiles"
    assert "ask for 5, 50, 95" in warning["message"]
    assert client.post("/predict", {"inputs": [ROW], "percentiles": [0.5, 99.5]}).json()["warnings"] == []


def test_many_warnings_are_summed_up(client: AppClient) -> None:
    warnings = client.post("/predict", {"inputs": [{**ROW, "Weight": 9000}] * 1000}).json()["warnings"]
    assert len(warnings) == 101
    assert warnings[-1]["pointer"] == "/inputs"


@pytest.mark.parametrize("content_type", ["text/plain", "x" * 500])
def test_other_media_types_are_415(client: AppClient, content_type: str) -> None:
    response = client.post("/predict", content=b"{}", kind=content_type)
    assert pointers(response, 415) == []


@pytest.mark.parametrize(
    "path",
    ["/models/boats/predict", "/models/cars/versions/2/predict", "/models/..%2Fcars/predict", "/predict/"],
)
def test_unknown_models_versions_and_paths_are_404(client: AppClient, path: str) -> None:
    response = client.post(path, {"inputs": [ROW]})
    assert pointers(response, 404) == []


def test_of_several_models_one_must_be_named() -> None:
    with make_client(FakeModel("a"), FakeModel("b")) as client:
        response = client.post("/predict", {"inputs": [ROW]})
        assert response.status_code == 404
        assert "/models/a/predict" in response.json()["detail"]
        assert client.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}).json()["result"] == {}
        assert client.post("/models/b/predict", {"inputs": [ROW]}).json()["model"]["name"] == "b"
    with make_client(FakeModel("a"), FakeModel("b"), default_model="b") as client:
        assert client.post("/predict", {"inputs": [ROW]}).json()["model"]["name"] == "b"


def test_an_overflow_is_the_request_s_fault_and_names_the_cell(client: AppClient, model: FakeModel) -> None:
    response = client.post("/predict", {"inputs": [ROW, {**ROW, "Weight": 1e308, "Horsepower": 1e308}]})
    assert response.status_code == 200
    response = client.post("/predict", {"inputs": [ROW, {**ROW, "Weight": 1e308, "Horsepower": 1.79e308}]})
    assert pointers(response, 422) == ["/inputs/1/Weight", "/inputs/1/Horsepower"]


@pytest.mark.parametrize(
    ("settings", "request_"),
    [
        ({"max_rows": 3}, {"inputs": [ROW] * 4}),
        ({"max_pending_cost": 1000}, {"inputs": [ROW] * 4, "samples": 256}),
        ({"max_draw_values": 3}, {"inputs": [ROW] * 4, "samples": 3, "include": ["draws"]}),
    ],
)
def test_what_could_never_be_answered_is_413(settings: dict[str, Any], request_: dict[str, Any]) -> None:
    with make_client(FakeModel(), **settings) as client:
        response = client.post("/predict", request_)
        assert response.status_code == 413
        assert "at most 3" in response.json()["detail"]  # what would fit


def test_a_body_that_does_not_arrive_is_408() -> None:
    async def never() -> Any:
        yield b"{"
        await asyncio.sleep(20)

    with make_client(FakeModel(), request_timeout=0.1) as client:
        assert client.post("/predict", content=never()).status_code == 408


def test_predictions_are_refused_while_closing(client: AppClient) -> None:
    client.state["service"].lifecycle.closing = True
    response = client.post("/predict", {"inputs": [ROW]})
    assert response.status_code == 503
    assert "retry-after" in response.headers


def test_the_caller_may_shorten_the_time_to_wait(client: AppClient, model: FakeModel) -> None:
    hold = threading.Event()
    model.before = lambda: assert_free(hold)
    parsed: list[dict[str, Any]] = [
        {"json": {"inputs": [ROW], "timeout": 0.1}},
        {"json": {"inputs": [ROW], "timeout": 1e-4}},
        {"json": {"inputs": [ROW]}, "headers": {"x-request-timeout": "0.1"}},
        {"json": {"inputs": [ROW], "timeout": 30}, "headers": {"x-request-timeout": "0.1"}},
    ]
    try:
        for arguments in parsed:
            response = client.post("/predict", **arguments)
            assert response.status_code == 504
            assert "within 0." in response.json()["detail"]
            # One row can't be made fewer.
            assert "fewer rows" not in response.json()["detail"]
    finally:
        hold.set()


@pytest.mark.parametrize("said", ["0", "nan", "soon"])
def test_a_senseless_time_to_wait_is_422(client: AppClient, said: str) -> None:
    response = client.post("/predict", {"inputs": [ROW]}, headers={"x-request-timeout": said})
    assert response.status_code == 422
    assert "X-Request-Timeout" in response.json()["detail"]
    assert client.post("/predict", {"inputs": [ROW], "timeout": 0}).status_code == 422


def assert_free(event: threading.Event) -> None:
    assert event.wait(20)
