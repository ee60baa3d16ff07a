from __future__ import annotations

import shlex
from dataclasses import replace

import orjson

from murho.model.tables.schema import Feature, FeatureKind
from murho.service.predict.examples import curl_line, example_row
from murho.service.predict.inputs import parse_inputs
from tests.service.support import ROW, SCHEMA, FakeModel


def test_an_example_from_the_schema_is_within_the_training_range() -> None:
    row = example_row(FakeModel())
    inputs = parse_inputs([row], SCHEMA, 1)
    assert SCHEMA.outside(inputs.columns) == []
    assert row["Weight"] == 3000.0


def test_the_training_row_of_the_checkpoint_goes_first() -> None:
    model = FakeModel()
    model.spec = replace(model.spec, training={"example": ROW})
    assert example_row(model) == ROW


def test_a_stored_row_of_other_features_is_not_shown() -> None:
    model = FakeModel()
    model.spec = replace(model.spec, training={"example": {"Weight": 1}})
    assert list(example_row(model)) == list(ROW)


def test_a_feature_without_a_training_value_is_null() -> None:
    never = Feature("Never", FeatureKind.NUMERIC, None, True, None, None, ())
    assert example_row(FakeModel(schema=replace(SCHEMA, features=(never,)))) == {"Never": None}


def test_the_curl_line_survives_the_shell() -> None:
    model = FakeModel()
    model.spec = replace(model.spec, training={"example": {**ROW, "Origin/plant": "it's $HOME"}})
    words = shlex.split(curl_line(model, "http://127.0.0.1:8000"))
    assert words[:3] == ["curl", "-s", "http://127.0.0.1:8000/models/cars/predict"]
    assert orjson.loads(words[-1])["inputs"][0]["Origin/plant"] == "it's $HOME"
