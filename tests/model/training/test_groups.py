"""Tests of `model.training.groups`: rows of groups, and names of their checkpoints."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.errors import TableError
from murho.model.posterior.checkpoint_directories import NAME_PATTERN
from murho.model.training.groups import checkpoint_name, groups_of


def test_a_plain_value_is_part_of_the_name_and_another_gets_a_hash() -> None:
    assert checkpoint_name("sales", "store_7") == "sales-store_7"
    assert checkpoint_name("sales", "Zürich / 4") == "sales-Zurich-4-e5be0ea8"
    assert checkpoint_name("sales", "東京") == "sales-" + checkpoint_name("sales", "東京").rpartition("-")[2]


@given(st.lists(st.text(min_size=1, max_size=90), min_size=2, max_size=8, unique=True), st.integers(1, 64))
def test_names_are_allowed_and_differ(values: list[str], length: int) -> None:
    values = [value.encode(errors="ignore").decode() or "-" for value in values]
    names = {value: checkpoint_name("x" * length, value) for value in values}
    assert all(NAME_PATTERN.fullmatch(name) for name in names.values())
    assert len(set(names.values())) == len(names)


def test_groups_come_by_number_of_rows_and_rows_without_a_value_are_counted() -> None:
    table = pa.table({"store": ["b", "a", None, "c", "a", "c"], "y": range(6)})
    groups, missing = groups_of(table, "store", "m")
    assert [(group.value, group.name, group.rows.tolist()) for group in groups] == [
        ("a", "m-a", [1, 4]),
        ("c", "m-c", [3, 5]),
        ("b", "m-b", [0]),
    ]
    assert missing == 1


def test_whole_numbers_name_groups_too() -> None:
    groups, _ = groups_of(pa.table({"store": [7, 7, 12]}), "store", "m")
    assert [group.name for group in groups] == ["m-7", "m-12"]


def test_a_column_that_is_not_there_or_is_empty_is_said() -> None:
    with pytest.raises(TableError, match="the column of groups 'shop' is not a column of the table: did you mean"):
        groups_of(pa.table({"shops": [1]}), "shop", "m")
    with pytest.raises(TableError, match="column 'shop' has no value in any row"):
        groups_of(pa.table({"shop": pa.nulls(3, pa.string())}), "shop", "m")
