from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from tests.service.classifiers import Classifier
from tests.service.support import ROW, AppClient, FakeModel, make_client


@pytest.fixture
def described(client: AppClient) -> dict[str, Any]:
    document: dict[str, Any] = client.get("/openapi.json").json()
    return document


def test_the_limits_of_the_settings_are_shown() -> None:
    with make_client(FakeModel(), max_samples=99) as client:
        schemas = client.get("/openapi.json").json()["components"]["schemas"]
    samples = schemas["PredictRequest"]["properties"]["samples"]
    assert {"type": "integer", "minimum": 0, "maximum": 99} in samples["anyOf"]


def test_the_example_works_for_the_model_that_is_loaded(client: AppClient, described: dict[str, Any]) -> None:
    example = described["components"]["schemas"]["PredictRequest"]["example"]
    assert set(example["inputs"][0]) == set(ROW)
    assert client.post("/predict", example).status_code == 200


@pytest.mark.parametrize("name", ["PredictResponse", "ClassPredictResponse"])
def test_the_example_of_a_response_is_as_described(described: dict[str, Any], name: str) -> None:
    example = described["components"]["schemas"][name]["example"]
    schema = {"$ref": f"#/components/schemas/{name}", "components": described["components"]}
    jsonschema_rs.validate(schema, example)
    assert len(example["extrapolation"]) == len(example["percentiles"]["values"])


def test_generators_of_clients_know_the_type_of_what_a_path_names(described: dict[str, Any]) -> None:
    operations = [operation for each in described["paths"].values() for operation in each.values()]
    named = [each for operation in operations for each in operation.get("parameters", ()) if each["in"] == "path"]
    assert named
    assert {each["schema"]["type"] for each in named} == {"string"}


def test_an_answer_is_as_described(client: AppClient, described: dict[str, Any]) -> None:
    schema = {"$ref": "#/components/schemas/PredictResponse", "components": described["components"]}
    for options in (
        {},
        {"samples": 0, "include": ["mc_error"]},
        {"samples": 3, "include": ["draws"], "thresholds": [1]},
        {"include": ["draws", "mc_error"]},
        {"include": ["mc_error"], "percentiles": []},
    ):
        answer = client.post("/predict", {"inputs": [ROW], **options}).json()
        jsonschema_rs.validate(schema, answer)


def test_the_answer_of_a_classifier_is_as_described() -> None:
    with make_client(Classifier()) as client:
        components = client.get("/openapi.json").json()["components"]
        schema = {"$ref": "#/components/schemas/ClassPredictResponse", "components": components}
        for options in (
            {},
            {"samples": 0, "include": ["mc_error", "draws"]},
            {"samples": 3, "include": ["draws"], "coverage": 0.5},
            {"include": ["mc_error"], "percentiles": []},
        ):
            answer = client.post("/predict", {"inputs": [ROW], **options}).json()
            jsonschema_rs.validate(schema, answer)
        assert not jsonschema_rs.is_valid({**schema, "$ref": "#/components/schemas/PredictResponse"}, answer)
