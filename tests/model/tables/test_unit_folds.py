"""Folds made of whole units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.tables.splits import Units, assign_folds, take_units


def _generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def test_units_of_one_row_make_even_folds() -> None:
    shuffled = _generator().permutation(103)
    for units in (None, Units(np.arange(103))):
        sizes = np.bincount(assign_folds(shuffled, 5, units, _generator()), minlength=5)
        assert sizes.max() - sizes.min() <= 1


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(2, 10), st.integers(0, 5))
def test_no_unit_is_parted_and_folds_differ_by_one_unit_at_most(sizes: list[int], count: int, seed: int) -> None:
    of_rows = np.repeat(np.arange(len(sizes)), sizes)
    folds = assign_folds(_generator(seed).permutation(len(of_rows)), count, Units(of_rows), _generator(seed))
    assert all(len(set(folds[of_rows == unit].tolist())) == 1 for unit in range(len(sizes)))
    loads = np.bincount(folds, minlength=count)
    assert loads.max() - loads.min() <= max(sizes)


def test_units_of_the_same_size_are_assigned_at_random() -> None:
    units = Units(np.repeat(np.arange(20), 3))
    one, other = (assign_folds(_generator(seed).permutation(60), 5, units, _generator(seed)) for seed in (0, 1))
    assert one.tolist() != other.tolist()


def test_with_fewer_units_than_folds_some_folds_are_empty() -> None:
    units = Units(np.repeat(np.arange(3), 20))
    folds = assign_folds(_generator().permutation(60), 5, units, _generator())
    assert len(set(folds.tolist())) == 3


@pytest.mark.parametrize(("groups", "empty"), [(2, 1), (3, 0), (12, 0)])
def test_whole_units_are_taken_and_some_are_left(groups: int, empty: int) -> None:
    of_rows = np.repeat(np.arange(groups), 10)
    parts = take_units(_generator().permutation(len(of_rows)), (15, 15), Units(of_rows))
    assert sum(len(part) for part in parts) == 10 * groups
    kinds = [set(of_rows[part].tolist()) for part in parts]
    assert sum(len(kind) for kind in kinds) == groups
    assert [len(part) == 0 for part in parts].count(True) == empty
    assert len(parts[-1]) > 0
