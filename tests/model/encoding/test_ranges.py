"""Inputs that are zero within the training range and grow beyond it."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.encoding.encoder import ENCODINGS, Continuation, Encoder, Ranges, with_schema
from murho.model.encoding.feature_encodings import Scale, Standard
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.model.tables.schema_inference import columns_from_table, make_schema, plan_columns
from tests.model.conftest import make_table
from tests.model.encoding.distribution_tables import schema_of


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
@pytest.mark.parametrize("slipped", [False, True])
def test_training_rows_are_within_reach_to_the_last_bit_and_a_step_further_is_not(
    encoding: str, *, slipped: bool
) -> None:
    table = make_table()
    if slipped:
        size = table.column("size").to_numpy().copy()
        size[7] = 60_000.0
        table = table.set_column(0, "size", pa.array(size, from_pandas=True))
    plan = plan_columns(table, "rent")
    columns = columns_from_table(table, plan.schema)
    schema = make_schema(plan.schema, columns)
    encoder = Encoder.fit(schema, columns, encoding=encoding)
    lower, upper = encoder.training_range
    encoded = encoder.encode(columns).inputs
    assert ((lower <= encoded) & (encoded <= upper)).all()

    def is_within(change: dict[str, object]) -> bool:
        row = {name: column[:1].copy() for name, column in columns.items()}
        for name, value in change.items():
            row[name] = np.array([value], dtype=columns[name].dtype)
        alone = encoder.encode(row)
        assert alone.out_of_range[0] == ((alone.inputs[0] < lower) | (upper < alone.inputs[0])).any()
        return not alone.out_of_range[0]

    size_feature, day = schema.features[0], schema.features[3]
    assert size_feature.minimum is not None
    assert day.maximum is not None
    assert is_within({"size": size_feature.minimum, "day": day.maximum})
    assert is_within({"size": np.nan})
    assert not is_within({"size": size_feature.minimum - 1.0})
    assert not is_within({"day": day.maximum + 10.0})
    assert not is_within({"district": "elsewhere"})


def test_a_bounded_number_has_no_distance_and_is_bounded_after_a_round_trip() -> None:
    pixel = Feature("pixel", FeatureKind.NUMERIC, None, missing=False, minimum=0.0, maximum=255.0, categories=())
    features = (pixel, replace(pixel, name="size"))
    schema = Schema(features, Target("digit", None), {})
    parts = (Standard(features[0], Scale(0.0, 126.0), bounded=True), Standard(features[1], Scale(0.0, 126.0)))
    encoder = Encoder(schema, "standard", parts)
    assert encoder.names == ("pixel", "size", "size beyond the training rows")
    columns = {name: np.array([0.0, 252.0]) for name in ("pixel", "size")}
    np.testing.assert_array_equal(encoder.encode(columns).inputs, [[0.0, 0.0, 0.0], [2.0, 2.0, 0.0]])
    assert Encoder.from_json(with_schema(encoder.to_json(), schema.to_json())) == encoder


VALUES = np.linspace(0.0, 4.0, 81)
HALF = Continuation(0.5, (1.0, 2.0), (1.0, 3.0), (0.0, 2.0), (0.0, 4.0))


def encoder_of(encoding: str = "standard") -> Encoder:
    return Encoder.fit(schema_of({"x": VALUES}, imputed=False), {"x": VALUES}, encoding=encoding)


def seen(values: np.ndarray, rule: Continuation) -> np.ndarray:
    """Return what the network sees of values."""
    return np.asarray(Ranges.of(encoder_of().parts, {"x": rule}).measure({"x": values})[1]["x"])


def test_a_share_of_the_excess_is_seen_up_to_the_depth_of_each_side() -> None:
    values = np.array([-9.0, -0.5, 0.0, 3.0, 4.0, 5.0, 6.0, 99.0, np.inf, np.nan])
    expected = [-0.5, -0.25, 0.0, 3.0, 4.0, 4.5, 5.0, 5.0, 5.0, np.nan]
    np.testing.assert_array_equal(seen(values, HALF), expected)


@given(st.floats(0.0, 4.0), st.floats(0.0, 1.0))
def test_within_the_range_every_value_is_seen_as_it_is_to_the_last_bit(value: float, share: float) -> None:
    values = np.array([value, 9.0])
    assert seen(values, replace(HALF, share=share))[0] == value


def test_the_input_of_the_distance_grows_by_slope_bend_and_stop_of_its_side_without_a_limit() -> None:
    plain = encoder_of()
    encoder = replace(plain, continuations={"x": HALF})
    assert Encoder.from_json(with_schema(encoder.to_json(), encoder.schema.to_json())) == encoder
    (place,) = encoder.range_distance_columns
    std = float(VALUES.std())
    rows = {"x": np.array([-9.0, 2.0, 4.0 + 1.0, 4.0 + 3.0, 1e9])}
    inputs = encoder.encode(rows).inputs[:, place]
    d, t = 3.0 / std, 2.0 / std  # of the row at 7: the distance, and how much of it is tested
    at_7 = np.sqrt((3.0 * d) ** 2 + (2.0 * t * (d - t / 2.0)) ** 2 + (4.0 * (d - t)) ** 2)
    at_5 = np.hypot(3.0 / std, 2.0 * 0.5 / std**2)
    np.testing.assert_allclose(inputs[:4], [9.0 / std, 0.0, at_5, at_7], rtol=1e-6)
    assert inputs[4] > 1e5
    assert np.isfinite(encoder.encode({"x": np.array([np.inf, -np.inf, 1e300])}).inputs).all()
    np.testing.assert_array_equal(encoder.encode({"x": VALUES}).inputs, plain.encode({"x": VALUES}).inputs)
