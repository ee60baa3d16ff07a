"""Categories that are gathered block by block are the columns of all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.evaluation.row_scores import CollectedCategories
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import make_table

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior


def test_blocks_make_the_columns_that_have_groups(rent: Posterior) -> None:
    columns = columns_from_table(make_table(rows=20, seed=5), rent.schema)
    places = (slice(0, 7), slice(7, 20))
    blocks = [(place, {name: column[place] for name, column in columns.items()}) for place in places]
    collected = CollectedCategories(rent.schema, 20)
    assert [place for place, _ in collected.of(blocks)] == list(places)
    assert set(collected.columns) == {"district", "lift"}
    for name, column in collected.columns.items():
        np.testing.assert_array_equal(column, columns[name])
