"""Which rows are held out, and from whom."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from murho.model.tables.splits import Units, split_in_time, split_rows


@pytest.mark.parametrize("count", [20, 49, 50, 400, 100_000])
def test_a_single_network_holds_out_rows_of_its_own(count: int) -> None:
    split = split_rows(count, seed=3)
    rows = np.concatenate([split.training, split.validation, split.calibration])
    assert sorted(rows.tolist()) == list(range(count))
    assert len(split.calibration) == 0 or len(split.calibration) >= 10
    assert split.folds is None


@pytest.mark.parametrize("count", [50, 52, 400])
def test_with_members_every_row_is_held_out_from_exactly_one(count: int) -> None:
    split = split_rows(count, seed=3, members=5)
    assert split.folds is not None
    assert split.training.tolist() == list(range(count))
    assert split.folds.shape == (1, count)
    sizes = np.bincount(split.folds[0])
    assert len(sizes) == 5
    assert sizes.max() - sizes.min() <= 1
    groups = split.held_out(5)
    assert [group.members for group in groups] == [(0,), (1,), (2,), (3,), (4,)]
    assert sorted(np.concatenate([group.rows for group in groups]).tolist()) == list(range(count))


@pytest.mark.parametrize(("members", "folds"), [(2, 2), (7, 7), (15, 5)])
def test_multiples_of_five_members_share_five_folds(members: int, folds: int) -> None:
    split = split_rows(100, seed=3, members=members)
    groups = split.held_out(members)
    assert len(groups) == folds
    assert [group.members for group in groups] == [
        tuple(member for member in range(members) if member % folds == fold) for fold in range(folds)
    ]
    assert sorted(np.concatenate([group.rows for group in groups]).tolist()) == list(range(100))


def test_two_judges_of_a_row_have_learned_from_different_rows() -> None:
    """Ten members: every row is held out from one of the first five and from one of the others, in all pairs."""
    split = split_rows(500, seed=3, members=10)
    groups = split.held_out(10)
    assert sorted(group.members or () for group in groups) == [
        (first, second) for first in range(5) for second in range(5, 10)
    ]
    assert sorted(np.concatenate([group.rows for group in groups]).tolist()) == list(range(500))
    for member in range(10):
        kept_from = sum(len(group.rows) for group in groups if member in (group.members or ()))
        assert kept_from == 100


def test_of_a_large_table_a_part_is_judged() -> None:
    split = split_rows(100_000, seed=0, members=4)
    assert len(split.training) == 100_000
    assert len(split.calibration) == 10_000


def test_tiny_tables_hold_out_nothing_or_a_few_rows() -> None:
    split = split_rows(12, seed=0, members=5)
    assert split.training is split.validation
    assert "too few" in split.describe()
    assert split_rows(30, seed=0, members=5).folds is None


def test_another_seed_is_another_split() -> None:
    one, other = (split_rows(60, seed, 5).folds for seed in (0, 1))
    assert one is not None
    assert other is not None
    assert one.tolist() != other.tolist()


@pytest.mark.parametrize("members", [5, 7, 10])
def test_no_member_learns_from_a_group_that_it_judges(members: int) -> None:
    units = Units(np.repeat(np.arange(40), 6), grouped=True)
    split = split_rows(240, seed=3, members=members, units=units)
    assert split.folds is not None
    for folds in split.folds:
        assert all(len(set(folds[units.of_rows == unit].tolist())) == 1 for unit in range(40))
        sizes = np.bincount(folds)
        assert sizes.max() - sizes.min() <= 6
    assert "40 groups" in split.describe()


@pytest.mark.parametrize("groups", [2, 3])
def test_two_or_three_groups_are_each_held_out(groups: int) -> None:
    units = Units(np.repeat(np.arange(groups), 40), grouped=True)
    split = split_rows(40 * groups, seed=0, members=10, units=units)
    held_out = split.held_out(10)
    assert len(held_out) == groups
    assert all(len(part.members or ()) == 2 for part in held_out)
    assert all(len(set(units.of_rows[part.rows].tolist())) == 1 for part in held_out)


def test_a_single_network_holds_out_whole_groups() -> None:
    units = Units(np.repeat(np.arange(30), 10), grouped=True)
    split = split_rows(300, seed=1, units=units)
    parts = [set(units.of_rows[part].tolist()) for part in (split.training, split.validation, split.calibration)]
    assert sum(len(part) for part in parts) == 30
    assert [len(part) for part in parts] == [22, 4, 4] or [len(part) for part in parts] == [20, 5, 5]


def test_in_time_every_judge_has_learned_only_from_rows_before() -> None:
    times = np.random.default_rng(0).permutation(400).astype(float)
    split = split_in_time(times, members=10)
    assert split.folds is not None
    assert split.forward
    groups = split.held_out(10)
    assert [group.members for group in groups] == [(fold, fold + 5) for fold in range(5)]
    for fold, group in enumerate(groups):
        learned = times[split.folds[0] < fold]
        assert learned.max() < times[group.rows].min()
    assert split.learned.tolist() == list(range(400))
    assert split.ahead == 40.0


def test_the_members_that_serve_see_as_many_of_the_newest_rows_as_they_were_judged_with() -> None:
    times = np.random.default_rng(0).permutation(400).astype(float)
    split = split_in_time(times, members=5)
    newest = split.newest()
    assert split.folds is not None
    assert newest is not None
    for member in range(5):
        seen = times[newest[0] < member]
        assert len(seen) == (split.folds[0] < member).sum()
        assert seen.min() == 400 - len(seen)
    alone = split_in_time(times).newest()
    assert alone is not None
    assert sorted(times[alone[0] < 0]) == list(range(120, 400))


def test_a_single_network_is_calibrated_on_the_newest_rows() -> None:
    split = split_in_time(np.arange(200.0))
    assert split.training.max() < split.validation.min()
    assert split.validation.max() < split.calibration.min()
    assert [len(part) for part in (split.training, split.validation, split.calibration)] == [140, 30, 30]
    assert "in time" in split.describe()


def test_distant_folds_part_no_unit_and_any_folds_do_where_rows_are_their_own_units() -> None:
    units = Units(np.repeat(np.arange(40), 5))
    folds = split_rows(200, seed=0, members=5, units=units).distant_folds()
    assert folds is not None
    assert sorted(set(folds.tolist())) == [0, 1, 2, 3, 4]
    assert all(len(set(folds[units.of_rows == unit].tolist())) == 1 for unit in range(40))
    assert split_rows(200, seed=0, members=5).distant_folds() is None


@pytest.mark.parametrize("members", [1, 5])
def test_distant_folds_follow_each_other_in_time(members: int) -> None:
    times = np.random.default_rng(0).permutation(200).astype(np.float64)
    folds = split_in_time(times, members).distant_folds()
    assert folds is not None
    blocks = [times[folds == fold] for fold in range(-1, int(folds.max()) + 1)]
    assert len(blocks) == (6 if members == 5 else 3)
    for earlier, later in pairwise(blocks):
        assert earlier.max() < later.min()
