"""What the network sees of a number beyond its training range."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.encoding.encoder import ENCODINGS, Encoder, with_schema
from murho.model.encoding.ranges import Continuation, Ranges
from murho.model.errors import CheckpointError
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target

VALUES = np.linspace(0.0, 4.0, 81)
HALF = Continuation(0.5, 1.0, 2.0)


def encoder_of(encoding: str = "standard") -> Encoder:
    feature = Feature("x", FeatureKind.NUMERIC, None, missing=False, minimum=0.0, maximum=4.0, categories=())
    return Encoder.fit(Schema((feature,), Target("y", None), {}), {"x": VALUES}, encoding=encoding)


def seen(values: np.ndarray, rule: Continuation) -> np.ndarray:
    """What the network sees of values."""
    return np.asarray(Ranges.of(encoder_of().parts, {"x": rule}).measure({"x": values})[1]["x"])


def test_a_share_of_the_excess_is_seen_up_to_the_depth_of_each_side() -> None:
    values = np.array([-9.0, -0.5, 0.0, 3.0, 4.0, 5.0, 6.0, 99.0, np.inf, np.nan])
    expected = [-0.5, -0.25, 0.0, 3.0, 4.0, 4.5, 5.0, 5.0, 5.0, np.nan]
    np.testing.assert_array_equal(seen(values, HALF), expected)


@given(st.floats(0.0, 4.0), st.floats(0.0, 1.0))
def test_within_the_range_every_value_is_seen_as_it_is_to_the_last_bit(value: float, share: float) -> None:
    values = np.array([value, 9.0])
    assert seen(values, Continuation(share, 1.0, 1.0))[0] == value


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_distance_is_that_of_the_value_itself(encoding: str) -> None:
    plain = encoder_of(encoding)
    encoder = replace(plain, continuations={"x": HALF})
    far, near = ({"x": np.array([value, 1.0])} for value in (5.0, 4.5))
    (distance,) = encoder.range_distance_columns
    inputs = [column for column in range(encoder.width) if column != distance]
    np.testing.assert_array_equal(encoder.encode(far).inputs[:, inputs], plain.encode(near).inputs[:, inputs])
    np.testing.assert_array_equal(encoder.encode(far).inputs[:, distance], plain.encode(far).inputs[:, distance])
    np.testing.assert_array_equal(encoder.encode({"x": VALUES}).inputs, plain.encode({"x": VALUES}).inputs)


def test_the_distance_of_a_number_counts_up_to_its_limit_on_both_sides() -> None:
    plain = encoder_of()
    encoder = replace(plain, continuations={"x": replace(HALF, furthest=1.5)})
    (distance,) = encoder.range_distance_columns
    std = float(VALUES.std())
    rows = {"x": np.array([-9.0, -0.5, 2.0, 4.0 + 1.4 * std, 4.0 + 1.6 * std, 1e9, np.inf])}
    expected = [-1.5, -0.5 / std, 0.0, 1.4, 1.5, 1.5, 1.5]
    np.testing.assert_allclose(encoder.encode(rows).inputs[:, distance], expected, rtol=1e-6)
    inputs = [column for column in range(encoder.width) if column != distance]
    unlimited = replace(plain, continuations={"x": HALF})
    np.testing.assert_array_equal(encoder.encode(rows).inputs[:, inputs], unlimited.encode(rows).inputs[:, inputs])
    np.testing.assert_array_equal(encoder.encode({"x": VALUES}).inputs, plain.encode({"x": VALUES}).inputs)


def test_they_survive_json() -> None:
    plain = encoder_of()
    for each in (HALF, replace(HALF, furthest=1.5)):
        encoder = replace(plain, continuations={"x": each})
        assert Encoder.from_json(with_schema(encoder.to_json(), encoder.schema.to_json())) == encoder


@pytest.mark.parametrize(
    ("continuations", "message"),
    [
        ([], "encoder.continuations"),
        ({"x": {"share": 0.5}}, "encoder.continuations.x"),
        ({"x": HALF.to_json() | {"share": 1.5}}, "encoder.continuations.x.share"),
        ({"x": HALF.to_json() | {"above": -1.0}}, "encoder.continuations.x.above"),
        ({"x": HALF.to_json() | {"below": None}}, "encoder.continuations.x.below"),
        ({"x": HALF.to_json() | {"furthest": -1.0}}, "encoder.continuations.x.furthest"),
    ],
)
def test_broken_ones_are_refused_by_field(continuations: object, message: str) -> None:
    encoder = encoder_of()
    data = encoder.to_json() | {"continuations": continuations}
    with pytest.raises(CheckpointError, match=message):
        Encoder.from_json(with_schema(data, encoder.schema.to_json()), "encoder")
