from __future__ import annotations

import time

from tests.service.support import ROW, AppClient


def test_requests_are_counted_by_route_template(client: AppClient) -> None:
    for path in ("/models/cars", "/models/boats", "/nowhere/at/all"):
        client.get(path)
    text = client.get("/metrics").text
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
