"""Tests of `murho.ray.predict`: a dataset in, the answers of `murho predict` out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import murho.ray
from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import TableError
from murho.model.predictive.prediction import PredictOptions
from murho.model.python.table_scoring import score_block
from tests.rents import CHECKPOINTS, RENTS


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_a_dataset_is_answered_in_order_with_the_same_bits_whatever_the_workers(rents_table: pa.Table) -> None:
    import ray

    found = []
    for workers, blocks in ((1, 3), (2, 11)):
        dataset = ray.data.from_arrow(rents_table).repartition(blocks)
        asked: dict[str, Any] = {
            "checkpoints": CHECKPOINTS,
            "samples": 64,
            "seed": 3,
            "workers": workers,
            "rows_per_block": 700,
            "percentiles": (5, 50, 95),
        }
        answers = murho.ray.predict(dataset, "rents", **asked)
        found.append(pa.concat_tables(answers.iter_batches(batch_size=None, batch_format="pyarrow")))
    one, two = found
    assert one["id"].to_pylist() == list(range(3_000))
    posterior = Posterior.load(RENTS)
    expected = score_block(posterior, rents_table, PredictOptions(samples=64, seed=3)).answers
    for name in expected.column_names:
        values = expected[name].to_numpy()
        np.testing.assert_array_equal(one[name].to_numpy(), two[name].to_numpy())
        np.testing.assert_allclose(one[name].to_numpy(), values, rtol=1e-5, atol=1e-5 * values.max())


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_a_dataset_that_lacks_a_feature_is_refused_at_once(rents_table: pa.Table) -> None:
    import ray

    dataset = ray.data.from_arrow(rents_table.drop_columns("sqm"))
    with pytest.raises(TableError, match="the feature 'sqm' is not a column"):
        murho.ray.predict(dataset, "rents", checkpoints=CHECKPOINTS)
