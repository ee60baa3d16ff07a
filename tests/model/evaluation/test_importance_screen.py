"""The screen before permutation importance: which features it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.evaluation.importance import permutation_importance, screened_features
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import make_table
from tests.model.rooms import rooms_table

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior


def test_few_features_are_all_kept_in_the_order_of_the_schema(rent: Posterior) -> None:
    columns = columns_from_table(make_table(rows=40, seed=3), rent.schema)
    assert screened_features(rent, columns, 9) == [feature.name for feature in rent.schema.features]


def test_those_are_kept_that_matter_most_by_draws_too(rent: Posterior) -> None:
    columns = columns_from_table(make_table(rows=200, seed=3), rent.schema)
    judged = permutation_importance(rent, columns, repeats=2)["features"]
    by_draws = sorted(judged, key=lambda feature: -feature["mean"]["value"])
    assert screened_features(rent, columns, 1) == [by_draws[0]["name"]]
    assert set(screened_features(rent, columns, 2)) == {feature["name"] for feature in by_draws[:2]}


def test_a_column_of_equal_cells_is_left_out_first(rooms: Posterior) -> None:
    columns = columns_from_table(rooms_table(rows=40, seed=4), rooms.schema)
    names = [feature.name for feature in rooms.schema.features]
    for name in names:
        kept = screened_features(rooms, {**columns, name: np.repeat(columns[name][:1], 40)}, len(names) - 1)
        assert set(kept) == set(names) - {name}


def test_only_the_named_features_are_judged(rent: Posterior) -> None:
    columns = columns_from_table(make_table(rows=40, seed=3), rent.schema)
    found = permutation_importance(rent, columns, repeats=1, samples=16, features=["size", "lift"])
    assert [feature["name"] for feature in found["features"]] == ["size", "lift"]
