"""Distances count up to an ellipsoid, each row by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

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


def test_rows_within_stay_and_rows_beyond_come_back_along_their_way() -> None:
    within = [[0.0, 0.0, 0.0], [1.9, 0.0, 0.0], [-1.0, 3.0, 0.0]]
    np.testing.assert_array_equal(limited(within), np.array(within, dtype=np.float32))
    np.testing.assert_allclose(limited([[-6.0, 0.0, 0.0]]), [[-2.0, 0.0, 0.0]])
    # (2, 4) is at the square root of 2 ellipsoids.
    np.testing.assert_allclose(limited([[2.0, 4.0, 0.0]]), [[2.0 / 2**0.5, 4.0 / 2**0.5, 0.0]], rtol=1e-6)


def test_what_has_no_limit_stays() -> None:
    np.testing.assert_allclose(limited([[0.0, 40.0, 7.0]]), [[0.0, 4.0, 7.0]])


@given(arrays(np.float32, (7, 3), elements=st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False)))
def test_each_row_is_limited_by_itself_and_ends_within(rows: np.ndarray) -> None:
    together = limited(rows.tolist())
    for row, alone in zip(together, rows, strict=True):
        np.testing.assert_array_equal(row, limited([alone.tolist()])[0])
    assert (np.hypot(together[:, 0] / 2.0, together[:, 1] / 4.0) <= 1.0 + 1e-6).all()


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
