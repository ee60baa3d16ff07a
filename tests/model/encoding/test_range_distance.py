"""Inputs that are zero within the training range and grow beyond it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from murho.model.encoding.encoder import ENCODINGS, Encoder, with_schema
from murho.model.encoding.transforms import Scale, Scaled, Standard
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.model.tables.schema_inference import columns_from_table, make_schema, plan_columns
from tests.model.conftest import make_table


def test_it_is_zero_for_every_training_row_and_grows_with_the_distance_on_both_sides() -> None:
    table = make_table()
    plan = plan_columns(table, "rent")
    columns = columns_from_table(table, plan.schema)
    schema = make_schema(plan.schema, columns)
    encoder = Encoder.fit(schema, columns)
    where = [index for index, name in enumerate(encoder.names) if name.endswith("beyond the training rows")]
    assert [encoder.names[index] for index in where] == [
        "size beyond the training rows",
        "day beyond the training rows",
    ]
    assert not encoder.encode(columns).inputs[:, where].any()

    size = schema.features[0]
    assert size.minimum is not None
    assert size.maximum is not None
    std = np.nanstd(columns["size"])
    rows = {name: column[:4].copy() for name, column in columns.items()}
    rows["size"] = np.array([size.minimum - 2 * std, size.maximum, size.maximum + 3 * std, np.nan])
    np.testing.assert_allclose(encoder.encode(rows).inputs[:, where[0]], [-2.0, 0.0, 3.0, 0.0], rtol=1e-5)


@pytest.mark.parametrize("kind", [FeatureKind.NUMERIC, FeatureKind.DATE])
@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_every_encoding_of_numbers_and_dates_has_a_scale_to_measure_the_distance_in(
    encoding: str, kind: FeatureKind
) -> None:
    feature = Feature("x", kind, None, missing=False, minimum=0.0, maximum=4.0, categories=())
    part = ENCODINGS[encoding][kind].fit(feature, np.arange(5.0))
    assert isinstance(part, Scaled)
    assert part.scale.std == pytest.approx(2.0**0.5)


def test_a_training_value_far_from_all_others_has_no_hold_on_the_standardised_input() -> None:
    table = make_table()
    size = table.column("size").to_numpy().copy()
    size[7] = 60_000.0  # square metres: a slipped decimal point
    table = table.set_column(0, "size", pa.array(size, from_pandas=True))
    plan = plan_columns(table, "rent")
    columns = columns_from_table(table, plan.schema)
    encoder = Encoder.fit(make_schema(plan.schema, columns), columns)
    encoded = encoder.encode(columns).inputs
    inside, beyond = (encoder.names.index(name) for name in ("size", "size beyond the training rows"))
    assert encoded[7, inside] == 5.0
    assert encoded[7, beyond] > 5.0
    assert not np.delete(encoded[:, beyond], 7).any()


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
        assert alone.beyond[0] == ((alone.inputs[0] < lower) | (upper < alone.inputs[0])).any()
        return not alone.beyond[0]

    size_feature, day = schema.features[0], schema.features[3]
    assert size_feature.minimum is not None
    assert day.maximum is not None
    assert is_within({"size": size_feature.minimum, "day": day.maximum})
    assert is_within({"size": np.nan})
    assert not is_within({"size": size_feature.minimum - 1.0})
    assert not is_within({"day": day.maximum + 10.0})
    assert not is_within({"district": "elsewhere"})


def test_columns_that_no_training_row_moves_are_named() -> None:
    table = make_table()
    plan = plan_columns(table, "rent")
    columns = columns_from_table(table, plan.schema)
    encoder = Encoder.fit(make_schema(plan.schema, columns), columns)
    assert [encoder.names[number] for number in encoder.zero_in_training] == [
        "district is unseen",
        "size beyond the training rows",
        "day beyond the training rows",
    ]
    size = columns["size"].copy()
    size[7] = 60_000.0  # moves "size beyond the training rows"
    columns = {**columns, "size": size}
    encoder = Encoder.fit(make_schema(plan.schema, columns), columns)
    assert [encoder.names[number] for number in encoder.zero_in_training] == [
        "district is unseen",
        "day beyond the training rows",
    ]


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
