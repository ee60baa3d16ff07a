"""Distinct classes get distinct names, and come back from JSON as they were."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import numpy as np
import pytest

from murho.model.python.estimators import ClassLabels


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (np.array([2, 10]), ("2", "10")),
        (np.array([False, True]), ("false", "true")),
        (np.array([0.5, 1.0]), ("0.5", "1")),
        (np.array(["north", "south"]), ("north", "south")),
        (np.array([" a", "a"]), ("a", "a (2)")),
        (np.array(["1", "1.0", "1.00"]), ("1", "1 (2)", "1 (3)")),
        (np.array(["TRUE", "True", "true"]), ("true", "true (2)", "true (3)")),
        (np.array(["", "a"]), ("(empty)", "a")),
        (np.array(["a", "a (2)", "a "]), ("a", "a (2)", "a (3)")),
        (np.array([b"a", b"b"]), ("b'a'", "b'b'")),
        (np.array([date(2020, 1, 2), date(2021, 1, 2)], dtype="datetime64[D]"), ("2020-01-02", "2021-01-02")),
    ],
)
def test_names_are_canonical_texts_and_distinct(values: np.ndarray, names: tuple[str, ...]) -> None:
    assert ClassLabels.of(values).names == names


def test_places_lead_to_the_sorted_classes_of_the_model() -> None:
    labels = ClassLabels.of(np.array([2, 10, 30]))
    assert np.array(sorted(labels.names))[labels.places].tolist() == ["2", "10", "30"]


@pytest.mark.parametrize(
    "values",
    [
        np.array([2, 10], dtype=np.int16),
        np.array([False, True]),
        np.array([0.1, 1e300]),
        np.array(["a", "bcd"]),
        np.array(["a", "bcd"], dtype=object),
    ],
)
def test_values_come_back_with_their_type(values: np.ndarray) -> None:
    labels = ClassLabels.of(values)
    again = ClassLabels.from_json(json.loads(json.dumps(labels.to_json())), tuple(sorted(labels.names)))
    np.testing.assert_array_equal(again.values, values)
    assert (again.values.dtype, again.names) == (values.dtype, labels.names)


def test_values_that_json_can_not_keep_come_back_as_their_names() -> None:
    labels = ClassLabels.of(np.array([b"a", b"b"]))
    again = ClassLabels.from_json(json.loads(json.dumps(labels.to_json())), ("b'a'", "b'b'"))
    assert again.values.tolist() == ["b'a'", "b'b'"]


@pytest.mark.parametrize(
    "data", [{"values": ["a", "c"], "dtype": "str"}, {"values": ["a"], "dtype": "str"}, {"values": [1], "dtype": "<i8"}]
)
def test_json_that_does_not_fit_the_model_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"class(es)? of the estimator"):
        ClassLabels.from_json(data, ("a", "b"))
