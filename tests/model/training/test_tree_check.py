"""It is said that boosted trees predict better where they do, and nowhere else."""

import numpy as np
import pytest

from murho.model.arrays import Doubles
from murho.model.tables.splits import split_in_time, split_rows
from murho.model.training.tree_check import MOST_FEATURES, check_trees

ROWS = 600
RANDOM = np.random.default_rng(0)
PLACE, OTHER, NOISE = RANDOM.uniform(size=ROWS), RANDOM.normal(size=ROWS), RANDOM.normal(size=ROWS)
CITY = np.array([*"abcdefgh"], dtype=object)[RANDOM.integers(8, size=ROWS)]
STEPS = (np.floor(20.0 * PLACE) % 2) + (CITY > "d")
GAPS = np.where(RANDOM.uniform(size=ROWS) < 0.1, np.nan, PLACE)


def checked(targets: Doubles, rmse: float, *, forward: bool = False, scale: float = 1.0) -> float | None:
    """Return the error of the trees if they err clearly less than this, in the unit of the scale."""
    cities = CITY.copy()
    cities[OTHER > 2.0] = None
    columns = {"place": GAPS, "city": cities, "constant": np.full(ROWS, np.nan), "other": OTHER}
    split = split_in_time(np.arange(ROWS, dtype=np.float64), 10) if forward else split_rows(ROWS, 0, 10)
    metrics = {"rmse": scale * rmse, "standard_errors": {"rmse": scale * rmse / 40.0}}
    found = check_trees(metrics, columns, scale * targets, split)
    return None if found is None else found["rmse"] / scale


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-120, 1e120])
def test_trees_learn_steps_that_a_line_does_not(forward: bool, scale: float) -> None:
    line = float(STEPS.std())
    error = checked(STEPS, line, forward=forward, scale=scale)
    assert error is not None
    assert 0.1 < error < 0.7 * line


def test_a_fit_that_is_as_good_as_its_noise_is_not_blamed() -> None:
    assert checked(3.0 * OTHER + 0.1 * NOISE, 0.1) is None
    assert checked(NOISE, 1.0) is None
    error = checked(STEPS, 9.0)
    assert error is not None
    assert checked(STEPS, 1.05 * error) is None


def test_without_folds_or_of_too_many_features_nothing_is_checked() -> None:
    metrics = {"rmse": 9.0, "standard_errors": {"rmse": 0.1}}
    assert check_trees(metrics, {"place": PLACE}, STEPS, split_rows(ROWS, 0, 1)) is None
    wide = {str(number): PLACE for number in range(MOST_FEATURES + 1)}
    assert check_trees(metrics, wide, STEPS, split_rows(ROWS, 0, 10)) is None
    assert (
        check_trees({"rmse": 9.0, "standard_errors": {"rmse": None}}, {"a": PLACE}, STEPS, split_rows(ROWS, 0, 10))
        is None
    )
