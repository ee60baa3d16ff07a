"""Inputs that are zero within the training range and grow beyond it."""

from __future__ import annotations

import numpy as np

from model.encoding import Encoder
from model.kinds import columns_from_table, make_schema, plan_columns
from tests.model.conftest import make_table


def test_it_is_zero_for_every_training_row_and_grows_with_the_distance_on_both_sides() -> None:
    table = make_table()
    plan = plan_columns(table, "rent")
    columns = columns_from_table(table, plan)
    schema = make_schema(plan, columns)
    encoder = Encoder.fit(schema, columns)
    where = [index for index, name in enumerate(encoder.names) if name.endswith("beyond its range")]
    assert [encoder.names[index] for index in where] == ["size beyond its range", "day beyond its range"]
    assert not encoder.encode(columns)[:, where].any()

    size = schema.features[0]
    assert size.minimum is not None
    assert size.maximum is not None
    std = np.nanstd(columns["size"])
    rows = {name: column[:4].copy() for name, column in columns.items()}
    rows["size"] = np.array([size.minimum - 2 * std, size.maximum, size.maximum + 3 * std, np.nan])
    np.testing.assert_allclose(encoder.encode(rows)[:, where[0]], [-2.0, 0.0, 3.0, 0.0], rtol=1e-5)
