from __future__ import annotations

from dataclasses import replace

import torch

from murho.model.calibration.conformal import fit_conformal_map
from tests.service.support import NAMES, AppClient, FakeModel, make_client


def test_the_list_names_models_versions_and_what_is_refused() -> None:
    with make_client(
        FakeModel(version="1"), FakeModel(version="2"), ("boats", "1", "wrong hash"), versions="all"
    ) as client:
        listed = client.get("/models").json()
        told = {path: client.get(f"/models/{path}") for path in ("x", "cars/versions/7", "boats", "%2e%2e%2fcars")}
    assert {response.status_code for response in told.values()} == {404}
    assert "there are: cars." in told["x"].json()["detail"]
    assert "there are: 1, 2." in told["cars/versions/7"].json()["detail"]
    assert "boats version 1 was refused: wrong hash" in told["boats"].json()["detail"]
    assert listed["default"] == "cars"
    assert [(model["name"], model["version"], model["versions"]) for model in listed["models"]] == [
        ("cars", "2", ["1", "2"])
    ]
    assert listed["models"][0]["task"] == "regression"
    assert listed["models"][0]["target"] == {"name": "Consumption", "unit": "mpg", "minimum": None, "maximum": None}
    assert listed["refused"] == [{"name": "boats", "version": "1", "reason": "wrong hash"}]


def test_a_model_is_described_with_its_features_in_schema_order(client: AppClient) -> None:
    described = client.get("/models/cars").json()
    assert (described["name"], described["version"], described["versions"]) == ("cars", "1", ["1"])
    assert described["task"] == "regression"
    assert described["target"] == {"name": "Consumption", "unit": "mpg", "minimum": None, "maximum": None}
    assert [feature["name"] for feature in described["features"]] == NAMES
    assert described["features"][0] == {
        "name": "Weight",
        "kind": "numeric",
        "unit": "lb",
        "min": 1000.0,
        "max": 5000.0,
        "categories": None,
        "missing": False,
    }
    assert described["features"][3]["min"] == "1970-01-01"
    assert described["features"][4]["categories"] == ["Europe", "USA"]
    assert described["metrics"]["rmse"] == 3.0
    assert described["training"] == {"rows": 278}
    assert "calibration" in described


def test_the_numbers_of_the_calibration_have_a_path_of_their_own(client: AppClient) -> None:
    full = client.get("/models/cars/calibration").json()
    assert (full["name"], full["version"]) == ("cars", "1")
    assert full == client.get("/models/cars/versions/1/calibration").json()
    assert client.get("/models/cars/versions/1").json() == client.get("/models/cars").json()
    assert client.get("/models/boats/calibration").status_code == 404
    assert client.get("/models/cars/versions/7/calibration").status_code == 404


def test_the_description_of_a_model_is_short() -> None:
    scores = torch.randn(900, generator=torch.Generator().manual_seed(1), dtype=torch.float64).numpy()
    calibration = fit_conformal_map(scores)
    assert calibration is not None
    model = FakeModel()
    sizes = model.spec.architecture
    pruned = replace(sizes, unread=((0,),), removed=bytes(-(-sizes.weights // 8)))
    model.spec = replace(model.spec, calibration=calibration, architecture=pruned)
    with make_client(model) as client:
        described = client.get("/models/cars")
        full = client.get("/models/cars/calibration").json()["calibration"]
    assert described.json()["calibration"]["method"] == full["method"] == calibration.method
    assert described.json()["calibration"]["rows"] == 900
    assert len(full["nominal"]) == len(full["observed"]) > 100
    assert set(described.json()["architecture"]) == {"inputs", "hidden", "outputs", "activation", "members", "skip"}
    assert len(described.content) < 4000
