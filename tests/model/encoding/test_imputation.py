from typing import Any

import numpy as np
import pytest

from murho.model.encoding.imputation import IMPUTATIONS, impute_columns
from tests.model.encoding.distribution_tables import distribution_of, mixed_columns, schema_of

COLUMNS = mixed_columns(800)
SCHEMA = schema_of(COLUMNS)


DISTRIBUTION = distribution_of(COLUMNS)


def blanked(rows: int, *names: str, seed: int = 1) -> dict[str, np.ndarray]:
    columns = mixed_columns(rows, seed)
    for name in names:
        columns[name][:] = None if columns[name].dtype == object else np.nan
    return columns


def copies(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray[Any, Any]]:
    """Completed copies, ``[R, B]`` each."""
    completed = impute_columns(DISTRIBUTION, SCHEMA, columns)
    return {name: column.reshape(IMPUTATIONS, -1) for name, column in completed.items()}


def test_known_cells_stay_and_imputed_ones_are_training_values() -> None:
    completed = copies(blanked(40, "second", "kind", "lift"))
    known = mixed_columns(40, seed=1)
    assert (completed["first"] == known["first"]).all()
    assert (completed["day"] == known["day"]).all()
    assert set(completed["kind"].ravel()) <= {"A", "B", "C"}
    assert set(completed["lift"].ravel()) <= {0.0, 1.0}
    assert COLUMNS["second"].min() <= completed["second"].min()
    assert completed["second"].max() <= COLUMNS["second"].max()


@pytest.mark.parametrize("name", ["first", "second", "day"])
def test_the_truth_lies_in_bands_of_imputed_numbers_as_often_as_they_say(name: str) -> None:
    low, high = np.quantile(copies(blanked(1000, name))[name], [0.05, 0.95], axis=0)
    truth = mixed_columns(1000, seed=1)[name]
    assert ((low <= truth) & (truth <= high)).mean() == pytest.approx(0.9, abs=0.04)


def test_levels_are_drawn_as_likely_as_the_rows_other_cells_make_them() -> None:
    truth = mixed_columns(2000, seed=1)["kind"]
    completed = copies(blanked(2000, "kind"))["kind"]
    likely = (completed == "C").mean(axis=0)
    assert likely[truth == "C"].mean() > 0.7
    assert likely[truth == "A"].mean() < 0.1
    assert likely.mean() == pytest.approx((truth == "C").mean(), abs=0.03)


def test_cells_of_a_feature_with_missing_cells_in_training_stay_missing() -> None:
    columns = mixed_columns(800)
    columns["second"][::4] = np.nan
    rows = blanked(5, "second", "lift")
    completed = impute_columns(distribution_of(columns), schema_of(columns), rows)
    assert np.isnan(completed["second"]).all()
    assert not np.isnan(completed["lift"]).any()


def test_copies_of_a_row_are_the_same_alone_and_in_any_batch() -> None:
    columns = mixed_columns(60, seed=2)
    generator = np.random.default_rng(0)
    for column in columns.values():
        column[generator.random(60) < 0.4] = None if column.dtype == object else np.nan
    whole = copies(columns)
    for row in SCHEMA.incomplete(columns)[:20]:
        alone = copies({name: column[row : row + 1] for name, column in columns.items()})
        for name, column in alone.items():
            np.testing.assert_array_equal(column[:, 0], whole[name][:, row])
