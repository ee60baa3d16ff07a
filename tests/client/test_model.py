"""A model's description, and rows that are checked against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from murho_client._data import to_batch
from murho_client._errors import InvalidInput
from murho_client._model import Model, check, fitted

DESCRIBED: dict[str, Any] = {
    "name": "cars",
    "version": "2",
    "versions": ["1", "2"],
    "target": {"name": "Miles_per_Gallon", "unit": "mpg"},
    "features": [
        {"name": "Weight", "kind": "numeric", "unit": "lb", "min": 1613.0, "max": 5140.0, "missing": False},
        {"name": "Diesel", "kind": "boolean", "unit": None, "min": 0.0, "max": 1.0, "missing": True},
        {"name": "Year", "kind": "date", "unit": None, "min": "1970-01-01", "max": "1982-01-01", "missing": False},
        {"name": "Origin", "kind": "categorical", "categories": ["Europe", "Japan", "USA"], "missing": False},
    ],
    "left_out": {"Name": "by --ignore"},
    "metrics": {"rmse": 2.9},
}
MODEL = Model.of(DESCRIBED)
GOOD: dict[str, Any] = {"Weight": [3504], "Diesel": [True], "Year": ["1970-01-01"], "Origin": ["USA"]}


def problems(data: object, model: Model = MODEL) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        check(to_batch(data), model)
    return [str(problem) for problem in caught.value.problems]


class TestModel:
    def test_the_description_is_read(self) -> None:
        assert (MODEL.name, MODEL.version, MODEL.versions) == ("cars", "2", ("1", "2"))
        assert (MODEL.task, MODEL.target, MODEL.unit, MODEL.classes) == ("regression", "Miles_per_Gallon", "mpg", None)
        assert [feature.kind for feature in MODEL.features] == ["numeric", "boolean", "date", "categorical"]
        assert MODEL.features[0].max == 5140.0
        assert MODEL.features[3].categories == ("Europe", "Japan", "USA")
        assert MODEL.metrics == {"rmse": 2.9}
        assert MODEL.raw is DESCRIBED

    def test_a_classifier_has_classes(self) -> None:
        target = {"name": "species", "classes": ["Adelie", "Gentoo"]}
        model = Model.of(DESCRIBED | {"task": "classification", "target": target})

        assert (model.task, model.classes, model.unit) == ("classification", ("Adelie", "Gentoo"), None)

    @pytest.mark.parametrize("key", ["name", "version", "target", "features"])
    def test_a_missing_key_is_named(self, key: str) -> None:
        with pytest.raises(ValueError, match=f"'{key}' is missing"):
            Model.of({name: value for name, value in DESCRIBED.items() if name != key})

    @pytest.mark.parametrize("change", [{"target": "mpg"}, {"features": ["Weight"]}, {"features": None}])
    def test_another_form_is_refused(self, change: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="another form"):
            Model.of(DESCRIBED | change)


class TestCheck:
    @pytest.mark.parametrize(
        "change",
        [
            {},
            {"Miles_per_Gallon": [18]},
            {"Weight": [None]},
            {"Weight": np.array([np.nan])},
            {"Diesel": [1]},
            {"Diesel": np.array([0.0])},
            {"Year": pd.to_datetime(["1970-01-01"])},
            {"Year": np.array([np.nan])},
            {"Origin": [4]},
            {"Origin": [True]},
            {"Origin": ["Mars"]},
        ],
    )
    def test_rows_that_fit_pass(self, change: dict[str, Any]) -> None:
        check(to_batch(GOOD | change), MODEL)

    def test_a_matrix_passes_by_its_width(self) -> None:
        check(to_batch([[3504, True, "1970-01-01", "USA"]]), MODEL)

        (message,) = problems([[3504, True]])
        assert message == "The matrix has 2 columns; 'cars' takes 4 in this order: Weight, Diesel, Year, Origin."

    def test_a_misspelt_feature_is_found_with_its_neighbour(self) -> None:
        named = {"weight" if name == "Weight" else name: cells for name, cells in GOOD.items()}

        assert problems(named) == [
            "Weight: The feature is missing. Is it the column 'weight'?",
            "weight: 'cars' has no such feature. Did you mean 'Weight'?",
        ]

    def test_columns_that_are_no_features_are_refused(self) -> None:
        assert problems(GOOD | {"Name": ["x"], "zzz": [1]}) == [
            "Name: The column was left out in training (by --ignore). Leave it out.",
            "zzz: 'cars' has no such feature. Leave it out.",
        ]

    def test_an_absent_feature_is_named(self) -> None:
        message = "Origin: The feature is missing. Give None in each row where the value is unknown."

        assert problems({name: cells for name, cells in GOOD.items() if name != "Origin"}) == [message]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"Weight": ["3504"]}, "Expected a number, not the text '3504'. Convert the column, for example"),
            ({"Weight": [True]}, "Expected a number, not the truth value True."),
            ({"Weight": pd.to_datetime(["1970-01-01"])}, "Expected a number, not the text '1970-01-01'"),
            ({"Diesel": [2]}, "Expected True or False, not the number 2."),
            ({"Diesel": ["true"]}, "Expected True or False, not the text 'true'."),
            ({"Year": [1970]}, "Expected a date, or ISO 8601 text such as '2024-05-31', not the number 1970."),
            (
                {"Year": np.array([1970.5])},
                "Expected a date, or ISO 8601 text such as '2024-05-31', not the number 1970.5",
            ),
        ],
    )
    def test_a_cell_of_another_kind_is_refused(self, change: dict[str, Any], message: str) -> None:
        (found,) = problems(GOOD | change)

        assert found.startswith(f"row 0, {next(iter(change))}: {message}")

    def test_a_cell_is_named_as_in_the_data_given(self) -> None:
        frame = pd.DataFrame({name: cells * 3 for name, cells in GOOD.items()}, index=["a", "b", "c"]).astype(object)
        frame.loc["b", "Weight"] = "heavy"
        with pytest.raises(InvalidInput) as caught:
            check(to_batch(frame), MODEL)

        (problem,) = caught.value.problems
        assert (problem.row, problem.label, problem.feature) == (1, "b", "Weight")
        assert str(problem).startswith("row 1 (index 'b'), Weight: Expected a number, not the text 'heavy'.")

    def test_only_the_first_problems_are_listed(self) -> None:
        with pytest.raises(InvalidInput) as caught:
            check(to_batch({name: cells * 100 for name, cells in GOOD.items()} | {"Weight": ["x"] * 100}), MODEL)

        assert len(caught.value.problems) == 20
        assert caught.value.total == 100

    def test_kinds_of_a_newer_service_are_left_to_it(self) -> None:
        model = Model.of(DESCRIBED | {"features": [{"name": "Weight", "kind": "ordinal"}]})

        check(to_batch({"Weight": ["heavy"]}), model)


class TestFitted:
    def test_features_come_in_schema_order_without_the_target(self) -> None:
        data = dict(reversed((GOOD | {"Miles_per_Gallon": [18]}).items()))

        assert list(fitted(to_batch(data), MODEL).inputs()) == list(GOOD)

    def test_a_matrix_gets_the_names_of_the_features(self) -> None:
        assert fitted(to_batch([[3504, True, "1970-01-01", "USA"]]), MODEL).inputs() == GOOD

    def test_truth_values_and_numbers_turn_into_each_others_kind(self) -> None:
        batch = fitted(to_batch(GOOD | {"Diesel": np.array([1.0]), "Origin": [True]}), MODEL)

        assert batch.inputs() == GOOD | {"Diesel": [True], "Origin": ["true"]}

    def test_labels_stay(self) -> None:
        batch = fitted(to_batch(pd.DataFrame(GOOD, index=["a"])), MODEL)

        assert batch.labels is not None
        assert list(batch.labels) == ["a"]
