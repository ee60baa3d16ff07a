"""Distances of numbers count up to a limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from murho.model.data.schema import Feature, FeatureKind, Schema, Target
from murho.model.encoding.doubt_limit import DoubtLimit
from murho.model.encoding.encoder import Encoder
from murho.model.errors import CheckpointError

NAMES = ("a", "b", "date")
LIMIT = DoubtLimit({"a": 2.0, "b": 4.0})


def limited(rows: list[list[float]]) -> np.ndarray:
    distances = np.array(rows, dtype=np.float32)
    LIMIT.apply(distances, NAMES)
    return distances


def test_each_distance_counts_up_to_its_limit_on_both_sides() -> None:
    rows = [[0.0, 0.0, 0.0], [1.9, -3.9, 0.0], [-6.0, 40.0, 7.0], [2.0, -4.0, -1e9]]
    expected = [[0.0, 0.0, 0.0], [1.9, -3.9, 0.0], [-2.0, 4.0, 7.0], [2.0, -4.0, -1e9]]
    np.testing.assert_array_equal(limited(rows), np.array(expected, dtype=np.float32))


def test_an_encoder_limits_what_it_says_of_distance_and_nothing_else() -> None:
    values = np.linspace(0.0, 4.0, 81)
    feature = Feature("x", FeatureKind.NUMERIC, None, missing=False, minimum=0.0, maximum=4.0, categories=())
    plain = Encoder.fit(Schema((feature,), Target("y", None), {}), {"x": values})
    encoder = replace(plain, doubt_limit=DoubtLimit({"x beyond the training rows": 1.5}))
    (distance,) = encoder.range_distance_columns
    rows = {"x": np.array([-40.0, -0.5, 2.0, 1e9, np.inf])}
    expected = plain.encode(rows)
    expected[:, distance] = np.clip(expected[:, distance], -1.5, 1.5)
    np.testing.assert_allclose(encoder.encode(rows), expected, rtol=1e-6)
    np.testing.assert_array_equal(encoder.encode({"x": values}), plain.encode({"x": values}))
    assert Encoder.from_json(encoder.to_json(), encoder.schema) == encoder
    assert "doubt_limit" not in plain.to_json()  # as in older checkpoints
    broken_ones: list[object] = [
        [],
        {"z": 1.0},
        {"x beyond the training rows": 0.0},
        {"x beyond the training rows": ""},
    ]
    for broken in broken_ones:
        with pytest.raises(CheckpointError, match=r"encoding\.doubt_limit"):
            Encoder.from_json(encoder.to_json() | {"doubt_limit": broken}, encoder.schema)
