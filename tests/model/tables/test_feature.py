"""A feature: how it is described, and what is said of values outside its training range."""

from __future__ import annotations

import numpy as np

from murho.model.tables.schema import Feature, FeatureKind, Schema, Target

WEIGHT = Feature("Weight", FeatureKind.NUMERIC, "lb", missing=True, minimum=1613.0, maximum=5140.0, categories=())
YEAR = Feature("Year", FeatureKind.DATE, None, missing=False, minimum=0.0, maximum=4383.0, categories=())
ORIGIN = Feature(
    "Origin",
    FeatureKind.CATEGORICAL,
    None,
    missing=True,
    minimum=None,
    maximum=None,
    categories=("Japan", "USA"),
)


def test_features_are_described_as_the_contract_says() -> None:
    assert [feature.describe() for feature in (WEIGHT, YEAR, ORIGIN)] == [
        {
            "name": "Weight",
            "kind": "numeric",
            "unit": "lb",
            "min": 1613.0,
            "max": 5140.0,
            "categories": None,
            "missing": True,
        },
        {
            "name": "Year",
            "kind": "date",
            "unit": None,
            "min": "1970-01-01",
            "max": "1982-01-01",
            "categories": None,
            "missing": False,
        },
        {
            "name": "Origin",
            "kind": "categorical",
            "unit": None,
            "min": None,
            "max": None,
            "categories": ["Japan", "USA"],
            "missing": True,
        },
    ]


def outside(feature: Feature, cells: list[object]) -> list[tuple[int, str]]:
    schema = Schema((feature,), Target("y", None), {})
    kind = object if feature.kind is FeatureKind.CATEGORICAL else np.float64
    return [(value.row, value.message) for value in schema.outside({feature.name: np.array(cells, dtype=kind)})]


def test_a_value_where_training_had_none_is_outside() -> None:
    empty = Feature("x", FeatureKind.NUMERIC, None, missing=True, minimum=None, maximum=None, categories=())
    assert outside(empty, [np.nan, 2.0]) == [(1, "2 can't be compared: no training row has a value")]


def test_long_lists_of_categories_are_cut_short() -> None:
    many = Feature("x", FeatureKind.CATEGORICAL, None, False, None, None, tuple(f"c{index:02}" for index in range(30)))
    ((row, message),) = outside(many, ["c01", "?"])
    assert row == 1
    assert message.endswith("'c09' and 20 more)")
