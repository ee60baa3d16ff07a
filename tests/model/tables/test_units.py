"""Which rows are held out together."""

from __future__ import annotations

import numpy as np
import pytest

from murho.model.errors import OptionError
from murho.model.tables.splits import find_units, joined_units


def _features(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).normal(size=rows)}


def _texts(values: np.ndarray) -> np.ndarray:
    return np.array([str(value) for value in values], dtype=object)


def test_rows_with_the_same_features_are_one_unit_and_it_is_said() -> None:
    columns = {name: np.tile(column, 4) for name, column in _features(60).items()}
    units = find_units(columns)
    assert units.count == 60
    assert (units.of_rows[:60] == units.of_rows[180:]).all()
    assert not units.grouped
    assert any("240 of 240 rows have the same features" in note for note in units.notes)


def test_in_a_table_that_looks_up_a_few_combinations_each_row_is_a_unit() -> None:
    generator = np.random.default_rng(0)
    columns = {"site": generator.choice(_texts(np.arange(4)), 400), "on": generator.integers(0, 2, 400).astype(float)}
    units = find_units(columns)
    assert units.count == 400
    assert any("only 8 different rows" in note for note in units.notes)


def test_forty_patients_with_numbers_of_their_own_are_no_look_up_table() -> None:
    columns = {name: np.repeat(column, 10) for name, column in _features(40).items()}
    assert find_units(columns).count == 40


def test_groups_stay_whole_and_equal_rows_join_them() -> None:
    columns = _features(40)
    columns["x"][39] = columns["x"][0]
    units = find_units(columns, {"plot": _texts(np.arange(40) // 5)})
    assert units.grouped
    assert units.count == 7
    assert len({*units.of_rows[:5].tolist(), *units.of_rows[35:].tolist()}) == 1


def test_features_too_coarse_to_be_copies_join_no_groups() -> None:
    columns = {"x": np.tile([0.0, 1.0], 100)}
    units = find_units(columns, {"plot": _texts(np.arange(200) // 10)})
    assert units.count == 20


def test_a_row_without_a_group_is_one_of_its_own() -> None:
    plots = np.array(["a", "a", None, None, "b", "b"], dtype=object)
    assert find_units(_features(6), {"plot": plots}).count == 4


def test_several_group_columns_make_connected_components() -> None:
    """Rows 0 and 1 share a farm, 1 and 2 a year: no fold may part them."""
    farm = np.array([0, 0, 1, 2, 2, 3])
    year = np.array([5, 6, 6, 7, 8, 9])
    units = joined_units([farm, year])
    assert units[0] == units[1] == units[2]
    assert units[3] == units[4]
    assert len(set(units.tolist())) == 3


def test_columns_that_connect_all_rows_are_refused_with_what_to_do() -> None:
    plots = {"farm": _texts(np.array([0, 0, 1, 1])), "year": _texts(np.array([0, 1, 1, 2]))}
    with pytest.raises(OptionError, match=r"--group farm --group year.*connect all rows.*column alone"):
        find_units(_features(4), plots)


def test_a_column_that_identifies_rows_or_none_makes_no_groups() -> None:
    with pytest.raises(OptionError, match="another value in each row"):
        find_units(_features(30), {"id": _texts(np.arange(30))})
    with pytest.raises(OptionError, match="all rows are one group"):
        find_units(_features(30), {"id": _texts(np.zeros(30))})
