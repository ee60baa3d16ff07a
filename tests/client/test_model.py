"""A model's description, and rows in the form that it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from murho_client._data import to_batch
from murho_client._model import Model, fitted

DESCRIBED: dict[str, Any] = {
    "name": "cars",
    "version": "2",
    "versions": ["1", "2"],
    "task": "regression",
    "target": {"name": "Miles_per_Gallon", "unit": "mpg"},
    "features": [
        {"name": "Weight", "kind": "numeric", "unit": "lb", "min": 1613.0, "max": 5140.0, "missing": False},
        {"name": "Diesel", "kind": "boolean", "unit": None, "min": 0.0, "max": 1.0, "missing": True, "new": 1},
        {"name": "Year", "kind": "date", "unit": None, "min": "1970-01-01", "max": "1982-01-01", "missing": False},
        {"name": "Origin", "kind": "categorical", "categories": ["Europe", "Japan", "USA"], "missing": False},
    ],
    "metrics": {"rmse": 2.9},
}
MODEL = Model.of(DESCRIBED)
GOOD: dict[str, Any] = {"Weight": [3504], "Diesel": [True], "Year": ["1970-01-01"], "Origin": ["USA"]}


def test_the_description_is_read() -> None:
    assert (MODEL.name, MODEL.version, MODEL.versions) == ("cars", "2", ("1", "2"))
    assert (MODEL.task, MODEL.target, MODEL.unit, MODEL.classes) == ("regression", "Miles_per_Gallon", "mpg", None)
    assert [feature.kind for feature in MODEL.features] == ["numeric", "boolean", "date", "categorical"]
    assert (MODEL.features[0].max, MODEL.features[0].categories) == (5140.0, None)
    assert MODEL.features[3].categories == ("Europe", "Japan", "USA")
    assert MODEL.metrics == {"rmse": 2.9}
    assert MODEL.raw is DESCRIBED
    target = {"name": "species", "classes": ["Adelie", "Gentoo"]}
    assert Model.of(DESCRIBED | {"target": target}).classes == ("Adelie", "Gentoo")


@pytest.mark.parametrize("change", [{"name": ...}, {"target": "mpg"}, {"features": ["Weight"]}, {"features": None}])
def test_a_description_of_another_form_is_none(change: dict[str, Any]) -> None:
    described = {name: value for name, value in (DESCRIBED | change).items() if value is not ...}
    with pytest.raises(ValueError, match=r"is missing|another form|features"):
        Model.of(described)


def test_the_target_is_left_out_and_other_columns_stay_for_the_service_to_judge() -> None:
    batch = fitted(to_batch(pd.DataFrame(GOOD, index=["a"]).assign(Miles_per_Gallon=18, Colour="red")), MODEL)
    assert batch.inputs() == GOOD | {"Colour": ["red"]}
    assert list(batch.labels) == ["a"]


def test_a_matrix_gets_the_names_of_the_features() -> None:
    assert fitted(to_batch([[3504, True, "1970-01-01", "USA"]]), MODEL).inputs() == GOOD
    assert fitted(to_batch([[3504, True]]), MODEL).inputs() == [[3504, True]]


def test_truth_values_and_numbers_turn_into_each_others_kind() -> None:
    batch = fitted(to_batch({"Diesel": np.array([1.0, 0, np.nan, 2]), "Origin": [True, None, 3, "USA"]}), MODEL)
    assert batch.inputs() == {"Diesel": [True, False, None, 2.0], "Origin": ["true", None, 3, "USA"]}
