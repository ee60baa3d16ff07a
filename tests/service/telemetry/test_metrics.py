"""Series of versions, their number, and what answers say of a model's doubt."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from prometheus_client import generate_latest

from murho.model.predictive.prediction import ClassPrediction, Prediction
from murho.service.telemetry.metrics import Telemetry
from tests.service.support import ROW, AppClient

ONE = np.ones(1)
ANSWER = Prediction(256, 0, True, ONE, ONE, ONE, ONE, extrapolation=ONE > 1.0)


def made() -> Telemetry:
    return Telemetry()


def of(telemetry: Telemetry, metric: str) -> dict[str, float]:
    """Labels of a metric to its value."""
    text = generate_latest(telemetry.registry).decode()
    return {labels: float(value) for labels, value in re.findall(rf"^{metric}{{(.*)}} (\S+)$", text, re.M)}


def test_series_of_a_version_end_with_it() -> None:
    telemetry = made()
    for model, version in ("a", "1"), ("a", "2"), ("b", "1"):
        telemetry.versions[model, version].count_rows(ANSWER, 1)
    telemetry.show_served([("a", "2")])
    telemetry.versions["a", "2"].count_rows(ANSWER, 1)
    assert of(telemetry, "murho_rows_total") == {'model="a",version="2"': 2.0}
    assert of(telemetry, "murho_queue_seconds_count") == {'model="a"': 0.0}
    assert of(telemetry, "murho_model_info") == {'model="a",version="2"': 1.0}


def doubt(prediction: Any) -> dict[str, float]:
    """Return the sums of two answers, by the names of their metrics."""
    telemetry = made()
    for _ in range(2):
        telemetry.versions["cars", "1"].count_rows(prediction, len(prediction))
    text = generate_latest(telemetry.registry).decode()
    return {name: float(value) for name, value in re.findall(r'^murho_(\w+)_total{model="cars".*} (\S+)$', text, re.M)}


def test_sums_go_over_the_rows_of_all_answers() -> None:
    std, epistemic = np.array([5.0, 10.0]), np.array([3.0, 10.0])
    far, noise = np.array([False, True]), np.array([4.0, 0.0])
    answer = Prediction(256, 0, True, np.zeros(2), std, epistemic, noise, extrapolation=far)
    sums = {"rows": 4.0, "unlike_rows": 2.0, "spread_rows": 4.0, "std": 30.0, "epistemic_share": 2 * (0.36 + 1.0)}
    assert doubt(answer) == pytest.approx(sums)


def test_the_share_of_classes_is_that_of_the_entropy_and_a_sure_answer_has_none() -> None:
    probabilities = np.array([[0.5, 0.5], [1.0, 0.0]])
    answer = ClassPrediction(
        256,
        0,
        True,
        ("a", "b"),
        np.array([0, 0]),
        probabilities,
        extrapolation=np.zeros(2, dtype=bool),
        entropy=np.array([0.6, 0.0]),
        epistemic_entropy=np.array([0.15, 0.0]),
    )
    sums = {"rows": 4.0, "unlike_rows": 0.0, "spread_rows": 4.0, "entropy": 1.2, "epistemic_share": 0.5}
    assert doubt(answer) == pytest.approx(sums)


@pytest.mark.parametrize("options", [{"samples": 0}, {"noise": False}])
def test_answers_without_a_split_of_their_spread_do_not_count(client: AppClient, options: dict[str, object]) -> None:
    assert client.post("/predict", {"inputs": [ROW], **options}).status_code == 200
    text = client.get("/metrics").text
    assert 'murho_rows_total{model="cars",version="1"} 1.0' in text
    assert 'murho_spread_rows_total{model="cars",version="1"} 0.0' in text
    assert "murho_std_total{" not in text


def test_requests_are_counted_by_route_template(client: AppClient) -> None:
    for path in ("/models/cars", "/models/boats", "/nowhere/at/all"):
        client.get(path)
    for path in ("/models/cars/predict", "/v2/models/cars/infer"):
        client.post(path, {})
    text = client.get("/metrics").text
    assert 'murho_http_requests_total{method="POST",route="/models/{name}/predict",status="422"} 1.0' in text
    assert 'murho_http_requests_total{method="POST",route="/v2/models/{name}/infer",status="400"} 1.0' in text
    assert 'murho_http_requests_total{method="GET",route="/models/{name}",status="200"} 1.0' in text
    assert 'murho_http_requests_total{method="GET",route="/models/{name}",status="404"} 1.0' in text
    assert 'murho_http_requests_total{method="GET",route="unmatched",status="404"} 1.0' in text
    assert "boats" not in text
    assert "nowhere" not in text


def test_a_made_up_method_is_no_label(client: AppClient) -> None:
    client.request("BREW", "/predict")
    assert 'method="other"' in client.get("/metrics").text


def test_predictions_are_counted_by_model(client: AppClient) -> None:
    client.post("/predict", {"inputs": [ROW, {**ROW, "Weight": 9000}]})
    text = client.get("/metrics").text
    assert 'murho_rows_total{model="cars",version="1"} 2.0' in text
    assert 'murho_compute_seconds_count{model="cars"} 1.0' in text
    assert 'murho_model_info{model="cars",version="1"} 1.0' in text
    end = time.monotonic() + 10.0
    while "murho_pending_requests 0.0" not in text:  # an answer goes out before its thread has counted it
        assert time.monotonic() < end
        text = client.get("/metrics").text
