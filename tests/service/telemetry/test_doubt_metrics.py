from __future__ import annotations

import re

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from murho.model.predictive.prediction import ClassPrediction, Prediction
from murho.service.telemetry.doubt_metrics import DoubtMetrics, ModelDoubt
from tests.service.support import ROW, AppClient


def values(registry: CollectorRegistry) -> dict[str, float]:
    text = generate_latest(registry).decode()
    return {name: float(value) for name, value in re.findall(r'^murho_(\w+)_total{model="cars".*} (\S+)$', text, re.M)}


def test_sums_go_over_the_rows_of_all_answers() -> None:
    registry = CollectorRegistry()
    doubt = ModelDoubt(DoubtMetrics(registry), "cars", "1")
    std, epistemic = np.array([5.0, 10.0]), np.array([3.0, 10.0])
    answer = Prediction(256, 0, True, np.zeros(2), std, epistemic, np.array([4.0, 0.0]), unlike=np.array([False, True]))
    doubt.record(answer, noise=True)
    doubt.record(answer, noise=True)
    assert values(registry) == pytest.approx(
        {"unlike_rows": 2.0, "spread_rows": 4.0, "std": 30.0, "epistemic_share": 2 * (0.36 + 1.0)}
    )


def test_the_share_of_classes_is_that_of_the_entropy_and_a_sure_answer_has_none() -> None:
    registry = CollectorRegistry()
    probabilities = np.array([[0.5, 0.5], [1.0, 0.0]])
    answer = ClassPrediction(
        256,
        0,
        True,
        ("a", "b"),
        np.array([0, 0]),
        probabilities,
        entropy=np.array([0.6, 0.0]),
        epistemic_entropy=np.array([0.15, 0.0]),
    )
    ModelDoubt(DoubtMetrics(registry), "cars", "1").record(answer, noise=True)
    assert values(registry) == pytest.approx(
        {"unlike_rows": 0.0, "spread_rows": 2.0, "entropy": 0.6, "epistemic_share": 0.25}
    )


def test_no_std_is_summed_up_over_different_units() -> None:
    registry = CollectorRegistry()
    one, metrics = np.ones(1), DoubtMetrics(registry)
    answer = Prediction(256, 0, True, one, one, one, one)
    ModelDoubt(metrics, "cars", "1", of_one_unit=False).record(answer, noise=True)
    assert values(registry) == {"unlike_rows": 0.0, "spread_rows": 1.0, "epistemic_share": 1.0}
    metrics.remove("cars", "1")
    assert values(registry) == {}


@pytest.mark.parametrize("options", [{"samples": 0}, {"noise": False}])
def test_answers_without_a_split_of_their_spread_do_not_count(client: AppClient, options: dict[str, object]) -> None:
    assert client.post("/predict", {"inputs": [ROW], **options}).status_code == 200
    text = client.get("/metrics").text
    assert 'murho_rows_total{model="cars",version="1"} 1.0' in text
    assert 'murho_spread_rows_total{model="cars",version="1"} 0.0' in text
    assert "murho_std_total{" not in text
