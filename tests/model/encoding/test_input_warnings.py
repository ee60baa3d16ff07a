"""Warnings about inputs, where the features have no joint distribution; the others: test_distance_warnings.py."""

from __future__ import annotations

import numpy as np

from murho.model.encoding.encoder import Encoder
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target

COLUMNS = {"heat": np.array([0.0, 1.0, 9.0, 10.0]), "place": np.array(["A", "B"] * 2, dtype=object)}
FEATURES = (
    Feature("heat", FeatureKind.NUMERIC, "degrees", False, 0.0, 10.0, ()),
    Feature("place", FeatureKind.CATEGORICAL, None, False, None, None, ("A", "B")),
)
ENCODER = Encoder.fit(Schema(FEATURES, Target("y", None), {}), COLUMNS)
ROWS = {"heat": np.array([4.0, 11.0, np.nan]), "place": np.array(["C", "C", "A"], dtype=object)}


def test_values_outside_the_training_range_are_listed_by_row_and_then_by_feature() -> None:
    found = [(item.row, item.feature) for item in ENCODER.unlike_values(ROWS)]
    assert found == [(0, "place"), (1, "heat"), (1, "place")]
    assert ENCODER.unlike_values(COLUMNS) == []
