from __future__ import annotations

from tests.service.support import NAMES, AppClient, FakeModel, make_client, pointers


def test_the_list_names_models_versions_and_what_is_refused() -> None:
    with make_client(
        FakeModel(version="1"), FakeModel(version="2"), ("boats", "1", "wrong hash"), versions="all"
    ) as client:
        client.wait_until_loaded()
        listed = client.get("/models").json()
    assert listed["default"] == "cars"
    assert [(model["name"], model["version"], model["versions"]) for model in listed["models"]] == [
        ("cars", "2", ["1", "2"])
    ]
    assert listed["models"][0]["task"] == "regression"
    assert listed["models"][0]["target"] == {"name": "Consumption", "unit": "mpg", "minimum": None, "maximum": None}
    assert listed["refused"] == [{"name": "boats", "version": "1", "reason": "wrong hash"}]


def test_without_a_checkpoint_the_list_is_empty() -> None:
    with make_client(("boats", "1", "wrong hash")) as client:
        client.wait_until_loaded()
        listed = client.get("/models").json()
    assert (listed["default"], listed["models"], len(listed["refused"])) == (None, [], 1)


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


def test_a_version_is_described_by_its_own_path(client: AppClient) -> None:
    assert client.get("/models/cars/versions/1").json() == client.get("/models/cars").json()


def test_unknown_models_and_versions_are_404(client: AppClient) -> None:
    for path in ("/models/boats", "/models/cars/versions/9", "/models/%2e%2e%2fcars"):
        response = client.get(path)
        assert response.status_code == 404
        assert pointers(response) == []
