"""A feature: how it is described, and what is said of values outside its training range."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from murho.model.errors import CheckpointError
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target, UnfamiliarValue

WEIGHT = Feature("Weight", FeatureKind.NUMERIC, "lb", missing=True, minimum=1613.0, maximum=5140.0, categories=())
YEAR = Feature("Year", FeatureKind.DATE, None, missing=False, minimum=0.0, maximum=4383.0, categories=())
ORIGIN = Feature(
    "Origin", FeatureKind.CATEGORICAL, None, missing=True, minimum=None, maximum=None, categories=("Japan", "USA")
)
TURBO = Feature("Turbo", FeatureKind.BOOLEAN, None, missing=False, minimum=0.0, maximum=1.0, categories=())
SCHEMA = Schema((WEIGHT, YEAR, ORIGIN, TURBO), Target("mpg", "mpg"), {"Name": "it identifies rows"})


def columns(weight: list[float], year: list[float], origin: list[str | None], turbo: list[float]) -> dict[str, Any]:
    return {
        "Weight": np.array(weight),
        "Year": np.array(year),
        "Origin": np.array(origin, dtype=object),
        "Turbo": np.array(turbo),
    }


def edited(path: list[str | int], value: object) -> dict[str, Any]:
    data = copy.deepcopy(SCHEMA.to_json())
    place: Any = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["features", 0, "kind"], "number", r"schema\.features\[0\]\.kind: expected 'numeric', 'cat"),
        (["features", 0, "name"], "Year", "schema: expected features with names that differ"),
        (["features", 0, "minimum"], 6000.0, r"schema\.features\[0\]: expected a minimum that is not above"),
        (["features", 0, "minimum"], None, r"schema\.features\[0\]: expected a minimum"),
        (["features", 0, "categories"], ["a"], "a minimum and a maximum, as a numeric feature has"),
        (["features", 2, "categories"], ["USA", "Japan"], r"features\[2\]: expected categories that differ, sorted"),
        (["target", "classes"], ["b", "a"], "at least two classes that differ, sorted"),
        (["features", 1, "reading"], {"decimal": ".", "unit": None, "form": "number"}, "expected a reading"),
    ],
)
def test_an_edited_schema_is_refused_with_its_field(path: list[str | int], value: object, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        Schema.from_json(edited(path, value), "schema")


def test_values_outside_are_listed_by_row_then_feature() -> None:
    outside = SCHEMA.outside(columns([1612.0, 2000.0, 10512.0], [1.0, 4384.0, -0.5], ["USA", "Mars", "USA"], [1.0] * 3))
    inside = columns([1613.0, 5140.0, np.nan], [0.0, 4383.0, 1.5], ["USA", "Japan", None], [0.0, 1.0, 1.0])
    assert SCHEMA.outside(inside) == []
    empty = Schema((replace(WEIGHT, minimum=None, maximum=None),), Target("y", None), {})
    (found,) = empty.outside({"Weight": np.array([np.nan, 2.0])})
    assert found.message == "2 lb can't be compared: no training row has a value"
    assert outside == [
        UnfamiliarValue(0, "Weight", "1612 lb is below the training range, 1613 to 5140 lb"),
        UnfamiliarValue(1, "Year", "1982-01-02 is above the training range, 1970-01-01 to 1982-01-01"),
        UnfamiliarValue(
            1, "Origin", "category 'Mars' was not seen in training, or too rarely to be told apart ('Japan', 'USA')"
        ),
        UnfamiliarValue(2, "Weight", "10512 lb is above the training range, 1613 to 5140 lb"),
        UnfamiliarValue(2, "Year", "1969-12-31T12:00:00Z is below the training range, 1970-01-01 to 1982-01-01"),
    ]
