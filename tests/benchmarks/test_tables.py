"""The tasks of the benchmarks of tables: what is learned from, and what is asked."""

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import co2, dependent, shift
from murho.model.training.options import make_options


@pytest.mark.parametrize("name", list(dependent.TABLES))
def test_a_dependent_table_has_fresh_rows_and_options_that_are_valid(name: str) -> None:
    task = dependent.task(name, 0, told=True)
    assert task.training.column_names == task.test.column_names
    assert task.training.num_rows >= 600
    assert task.test.num_rows >= 2_000
    make_options(dict(task.options))
    plain = dependent.task(name, 0, told=False)
    assert plain.training.equals(task.training)
    assert set(plain.options["ignore"]) <= set(task.training.column_names)


def test_no_feature_of_co2_is_made_from_the_series_itself() -> None:
    dates = [f"{year}-{month:02d}" for year in range(2009, 2013) for month in range(1, 13)]
    decimal = [f"{2009.0 + (index + 0.5) / 12.0:.4f}" for index in range(48)]
    values = [f"{380.0 + 0.2 * index:.2f}" for index in range(48)]
    read = pa.table({"date": dates, "decimal_date": decimal, "average_ppm": values, "deseasonalized_ppm": values})
    features = {kind: co2.features_of(read, kind)[0].column_names[:-1] for kind in co2.FEATURES}
    assert features == {"month": ["decimal_date", "month"], "date": ["date"]}


def test_gap_is_the_middle_third_and_tail_the_outer_sixths() -> None:
    feature = np.random.default_rng(0).permutation(12).astype(np.float64)
    rows = np.arange(100, 112)
    made = shift.shifted_splits(feature, rows)
    by_row = dict(zip(rows.tolist(), feature.tolist(), strict=True))
    assert sorted(by_row[row] for row in made["gap"].test.tolist()) == [4, 5, 6, 7]
    assert sorted(by_row[row] for row in made["tail"].test.tolist()) == [0, 1, 10, 11]
    for split in made.values():
        assert sorted([*split.training.tolist(), *split.test.tolist()]) == rows.tolist()
