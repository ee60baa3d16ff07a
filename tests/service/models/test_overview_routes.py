from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from murho.model.encoding.distribution_fit import fit_feature_distribution
from murho.model.encoding.feature_distribution import QuantileScores
from murho.model.report.charts import charts
from murho.service.app import create_app
from murho.service.settings import Settings
from tests.model.maps import odd_map
from tests.service.support import NAMES, SCHEMA, AppClient, FakeModel, FakeSource, make_client

ROWS = 400


def rows() -> dict[str, np.ndarray]:
    """Light cars come from Europe and are weak, heavy ones from the USA."""
    random = np.random.default_rng(0)
    heavy = random.random(ROWS) < 0.7
    weight = np.clip(np.where(heavy, 4000.0, 2000.0) + 200.0 * random.normal(size=ROWS), 1000, 5000)
    return {
        "Weight": weight,
        "Horsepower": np.clip(weight / 25.0 + random.normal(size=ROWS), 40, 230),
        "Automatic": heavy.astype(float),
        "Year": np.floor(random.uniform(0, 4383, ROWS)),
        "Origin/plant": np.where(heavy, "USA", "Europe").astype(object),
    }


@pytest.fixture
def told() -> FakeModel:
    """Return a model that knows the distribution of its training rows, its targets and its calibration."""
    model = FakeModel()
    columns = rows()
    targets = QuantileScores.fit(columns["Weight"] / 100.0)
    assert targets is not None
    encoder = replace(model.spec.encoder, distribution=fit_feature_distribution(SCHEMA, columns))
    model.spec = replace(
        model.spec,
        encoder=encoder,
        architecture=replace(model.spec.architecture, inputs=encoder.width),
        training={"rows": ROWS, "targets": targets.to_json()},
        calibration=odd_map((0.5, 1.0, 2.0), (1.0, 2.0, 4.0), rows=50),
    )
    return model


def test_features_come_with_their_training_rows(told: FakeModel) -> None:
    with make_client(told) as client:
        shown = client.get("/models/cars/overview").json()
    described = {feature["name"]: feature for feature in shown["features"]}
    counts = described["Weight"]["histogram"]["counts"]
    assert sum(counts) == pytest.approx(ROWS, abs=0.5)
    exact = np.histogram(rows()["Weight"], bins=len(counts))[0]
    assert np.abs(np.cumsum(counts) - np.cumsum(exact)).max() < 0.05 * ROWS
    assert sum(level["rows"] for level in described["Origin/plant"]["levels"]) == ROWS
    assert [level["value"] for level in described["Automatic"]["levels"]] == [False, True]
    assert described["Year"]["histogram"]["start"] == "1970-01-01"
    assert (described["Weight"]["step"], described["Weight"]["min"]) == (None, 1000.0)
    assert sum(shown["target"]["histogram"]["counts"]) == pytest.approx(ROWS, abs=0.5)


def test_what_a_checkpoint_has_not_is_null(client: AppClient) -> None:
    shown = client.get("/models/cars/overview").json()
    assert {feature["histogram"] for feature in shown["features"]} == {None}
    assert {feature["levels"] for feature in shown["features"]} == {None} == {shown["target"]["histogram"]}
    assert client.post("/predict", {"inputs": [shown["typical"]]}).status_code == 200


def overview_of_facts(facts: dict[str, Any]) -> dict[str, Any]:
    source = FakeSource(FakeModel())
    source.facts = facts
    with AppClient(create_app(Settings(), source=source)) as client:
        shown: dict[str, Any] = client.get("/models/cars/overview").json()
    return shown


@pytest.mark.parametrize("importance", [None, 7, {"measures": []}, {"measures": ["x"], "features": [{"name": "Year"}]}])
def test_without_a_ranking_features_are_in_schema_order(importance: Any) -> None:
    assert overview_of_facts({"importance": importance})["importance"] == NAMES


def charts_of_facts(facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    source = FakeSource(FakeModel())
    source.facts = facts
    with AppClient(create_app(Settings(), source=source)) as client:
        told = client.get("/models/cars/charts")
    assert told.status_code == 200
    return {chart["name"]: chart for chart in told.json()["charts"]}


def test_the_charts_are_those_of_the_report() -> None:
    facts = {"curves": [{"stage": "full", "epoch": [1, 2], "nll": [1.0, 0.5], "validation": [None, 0.7]}]}
    (chart,) = charts_of_facts(facts).values()
    assert (chart["name"], chart["title"]) == ("curves", "Training curves")
    assert chart["specification"] == charts(FakeModel().schema.target, facts)[0].specification


@pytest.mark.parametrize("facts", [{}, {"held_out": 7}, {"curves": [{}]}, {"held_out": None, "importance": 3}])
def test_facts_that_allow_no_chart_are_no_error(facts: dict[str, Any]) -> None:
    assert charts_of_facts(facts) == {}


def test_an_unknown_model_is_404_and_the_route_is_documented(client: AppClient) -> None:
    for path in ("overview", "charts"):
        assert client.get(f"/models/boats/{path}").status_code == 404
        assert f"/models/{{name}}/{path}" in client.get("/openapi.json").json()["paths"]
