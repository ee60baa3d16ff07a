"""Which rows are held out together, and from whom."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.errors import OptionError
from murho.model.tables.splits import BASE, Units, find_units, split_in_time, split_rows, time_blocks
from tests.model.conftest import present


def features(rows: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).normal(size=rows)}


def texts(values: np.ndarray) -> np.ndarray:
    return np.array([str(value) for value in values], dtype=object)


def test_in_a_table_that_looks_up_a_few_combinations_each_row_is_a_unit() -> None:
    generator = np.random.default_rng(0)
    columns = {"site": generator.choice(texts(np.arange(4)), 400), "on": generator.integers(0, 2, 400).astype(float)}
    units = find_units(columns)
    assert units.count == 400
    assert any("only 8 different rows" in note for note in units.notes)
    patients = {name: np.repeat(column, 10) for name, column in features(60).items()}
    own = find_units(patients)  # with numbers of their own
    assert (own.count, own.grouped) == (60, False)
    assert any("600 of 600 rows have the same features" in note for note in own.notes)


def test_groups_stay_whole_and_copies_join_them_but_coarse_features_and_missing_cells_do_not() -> None:
    columns = features(40)
    columns["x"][39] = columns["x"][0]
    units = find_units(columns, {"plot": texts(np.arange(40) // 5)})
    assert (units.grouped, units.count) == (True, 7)
    assert len({*units.of_rows[:5].tolist(), *units.of_rows[35:].tolist()}) == 1
    coarse = {"x": np.tile([0.0, 1.0], 100)}
    assert find_units(coarse, {"plot": texts(np.arange(200) // 10)}).count == 20
    assert find_units(features(6), {"plot": np.array(["a", "a", None, None, "b", "b"], dtype=object)}).count == 4


def test_several_group_columns_make_connected_components() -> None:
    """Rows 0 and 1 share a farm, 1 and 2 a year: no fold may part them."""
    farm, year = texts(np.array([0, 0, 1, 2, 2, 3])), texts(np.array([5, 6, 6, 7, 8, 9]))
    units = find_units(features(6), {"farm": farm, "year": year}).of_rows
    assert units[0] == units[1] == units[2]
    assert units[3] == units[4]
    assert len(set(units.tolist())) == 3


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ({"farm": [0, 0, 1, 1], "year": [0, 1, 1, 2]}, r"--group farm --group year.*connect all rows.*column alone"),
        ({"id": [0, 1, 2, 3]}, "another value in each row"),
        ({"id": [0, 0, 0, 0]}, "all rows are one group"),
    ],
)
def test_columns_that_make_no_groups_are_refused(groups: dict[str, list[int]], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        find_units(features(4), {name: texts(np.array(column)) for name, column in groups.items()})


@pytest.mark.parametrize(("sizes", "empty"), [([30, 30], 1), ([270, *[10] * 3], 0)])
def test_a_single_network_holds_out_whole_groups_and_learns_from_the_largest(sizes: list[int], empty: int) -> None:
    of_rows = np.repeat(np.arange(len(sizes)), sizes)
    split = split_rows(len(of_rows), seed=1, units=Units(of_rows, grouped=True))
    parts = [set(of_rows[part].tolist()) for part in (split.training, split.validation, split.calibration)]
    assert sum(map(len, parts)) == len(sizes)
    assert parts.count(set()) == empty
    assert max(sizes) in {sizes[unit] for unit in parts[0]}


def test_two_judges_of_a_row_have_learned_from_different_rows() -> None:
    """Ten members: every row is held out from one of the first five and from one of the others, in all pairs."""
    groups = split_rows(500, seed=3, members=10).held_out_groups(10)
    assert sorted(group.members or () for group in groups) == [(a, b) for a in range(5) for b in range(5, 10)]
    assert sorted(np.concatenate([group.rows for group in groups]).tolist()) == list(range(500))
    for member in range(10):
        assert sum(len(group.rows) for group in groups if member in (group.members or ())) == 100


def test_of_a_large_table_a_part_is_judged_and_tiny_ones_hold_out_nothing_or_a_few_rows() -> None:
    large = split_rows(100_000, seed=0, members=4)
    assert (len(large.training), len(large.calibration)) == (100_000, 10_000)
    split = split_rows(12, seed=0, members=5)
    assert split.training is split.validation
    assert "too few" in split.describe()
    assert split_rows(30, seed=0, members=5).folds is None


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(2, 30), min_size=30, max_size=40), st.integers(2, 10), st.integers(0, 5))
def test_no_member_learns_from_a_unit_that_it_judges_and_folds_are_even(
    sizes: list[int], members: int, seed: int
) -> None:
    of_rows = np.repeat(np.arange(len(sizes)), sizes)
    split = split_rows(len(of_rows), seed, members, Units(of_rows, grouped=True))
    assert split.folds is not None
    for folds in split.folds:
        assert all(len(set(folds[of_rows == unit].tolist())) == 1 for unit in range(len(sizes)))
        loads = np.bincount(folds)
        assert loads.max() - loads.min() <= max(sizes)
    assert f"{len(sizes)} groups" in split.describe()


def test_in_time_every_judge_has_learned_only_from_rows_before() -> None:
    times = np.random.default_rng(0).permutation(400).astype(float)
    split = split_in_time(times, members=10)
    assert split.folds is not None
    groups = split.held_out_groups(10)
    assert [group.members for group in groups] == [(fold, fold + 5) for fold in range(5)]
    for fold, group in enumerate(groups):
        assert times[split.folds[0] < fold].max() < times[group.rows].min()
    assert split.learned.tolist() == list(range(400))
    assert (split.forward, split.ahead) == (True, 40.0)


def test_the_members_that_serve_see_as_many_of_the_newest_rows_as_they_were_judged_with() -> None:
    times = np.random.default_rng(0).permutation(400).astype(float)
    split = split_in_time(times, members=5)
    newest, folds = present(split.newest()), present(split.folds)
    for member in range(5):
        seen = times[newest[0] < member]
        assert len(seen) == (folds[0] < member).sum() == 400 - seen.min()
    alone = present(split_in_time(times).newest())
    assert sorted(times[alone[0] < 0]) == list(range(120, 400))
    assert "in time" in split_in_time(np.arange(200.0)).describe()
    assert "before one of 5 blocks" in split.describe()


def test_distant_folds_part_no_unit_and_follow_each_other_in_time() -> None:
    units = Units(np.repeat(np.arange(40), 5))
    folds = present(split_rows(200, seed=0, members=5, units=units).distant_folds())
    assert all(len(set(folds[units.of_rows == unit].tolist())) == 1 for unit in range(40))
    assert split_rows(200, seed=0, members=5).distant_folds() is None
    times = np.random.default_rng(0).permutation(200).astype(np.float64)
    for members in (1, 5):
        folds = present(split_in_time(times, members).distant_folds())
        blocks = [times[folds == fold] for fold in range(-1, int(folds.max()) + 1)]
        assert all(earlier.max() < later.min() for earlier, later in pairwise(blocks))


def test_blocks_in_time_are_even_and_part_no_time() -> None:
    times = np.random.default_rng(0).permutation(1_000).astype(float)
    blocks = time_blocks(times, 5, base_share=0.5)
    assert [times[blocks.of_rows == block].min() for block in range(BASE, 5)] == [0, 500, 600, 700, 800, 900]
    assert blocks.ahead == 100.0
    months = np.repeat(np.arange(13.0), 30)
    of_rows = time_blocks(months, 5, base_share=0.5).of_rows
    assert all(len(set(of_rows[months == month].tolist())) == 1 for month in range(13))
    for newest in (1, 70):  # of two times
        two = time_blocks(np.array([3.0] * (100 - newest) + [5.0] * newest), 5, base_share=0.5)
        assert two.of_rows.tolist() == [BASE] * (100 - newest) + [0] * newest
    assert time_blocks(np.array([np.nan, *np.arange(20.0)]), 5, base_share=0.5).of_rows[0] == BASE
    with pytest.raises(OptionError, match="same time"):
        time_blocks(np.full(60, 3.0), 5, base_share=0.5)
