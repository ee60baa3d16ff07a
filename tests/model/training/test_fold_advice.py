"""Advice about columns by which a table should be held out: given where it is due, and not where it is not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from murho.model.tables.schema_inference import columns_from_table, plan_columns, target_from_table
from murho.model.training.rows import Advice, advise
from tests.model.conftest import Notes, make_table, train_quickly


def _advice(table: pa.Table, ignore: tuple[str, ...] = ()) -> list[Advice]:
    plan = plan_columns(table, "y", ignore=ignore)
    return advise(table, plan, columns_from_table(table, plan), target_from_table(table, "y"))


def _grouped(rows_of_a_group: int = 10, groups: int = 60, seed: int = 0) -> pa.Table:
    """Features that are constant in a group, and an effect of the group."""
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), rows_of_a_group)
    features = generator.normal(size=(groups, 2))[group] + 0.01 * generator.normal(size=(len(group), 2))
    target = features[:, 0] + generator.normal(size=groups)[group] + 0.3 * generator.normal(size=len(group))
    return pa.table({"a": features[:, 0], "b": features[:, 1], "y": target, "patient": group + 1_000})


def test_an_id_whose_rows_tell_about_each_other_is_named() -> None:
    (advice,) = _advice(_grouped())
    assert advice.option == "--group patient"
    assert advice.correlation > 0.7
    assert "60 values" in advice.message
    assert "give --group patient" in advice.message


def test_an_ignored_id_is_named_too() -> None:
    assert [advice.option for advice in _advice(_grouped(), ignore=("patient",))] == ["--group patient"]


def test_an_id_without_an_effect_is_not_named() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=600)
    y = x + generator.normal(size=600)
    assert _advice(pa.table({"x": x, "patient": np.repeat(np.arange(60), 10), "y": y})) == []


def test_a_quantity_in_whole_numbers_is_no_group() -> None:
    """Rows of the same hour tell about each other, but an hour is also told by the hours beside it."""
    generator = np.random.default_rng(0)
    hour = generator.integers(0, 24, 1_200)
    y = 5.0 * np.sin(hour / 24 * 2 * np.pi) + 0.3 * generator.normal(size=1_200)
    assert _advice(pa.table({"hour": hour, "x": generator.normal(size=1_200), "y": y})) == []


def test_a_walk_in_time_is_named_by_its_date() -> None:
    generator = np.random.default_rng(1)
    walk = np.cumsum(0.15 * generator.normal(size=800))
    columns = {
        "x": generator.normal(size=800),
        "y": walk + 0.3 * generator.normal(size=800),
        "day": np.datetime64("2020-01-01") + np.arange(800),
    }
    (advice,) = _advice(pa.table(columns))
    assert advice.option == "--time day"


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_rows_get_no_advice(seed: int) -> None:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(500, 3))
    columns = {
        "x": x[:, 0],
        "shop": generator.integers(0, 30, 500),
        "day": np.datetime64("2020-01-01") + generator.integers(0, 300, 500),
        "y": x[:, 0] ** 2 + x[:, 1],
    }
    assert _advice(pa.table(columns)) == []


def test_a_table_sorted_by_its_target_is_not_taken_for_one_in_time() -> None:
    table = _grouped()
    order = np.argsort(np.asarray(table["y"]))
    assert all("--time" not in advice.option for advice in _advice(table.take(order)))


def test_a_training_tells_and_keeps_its_advice_unless_the_option_is_given() -> None:
    table = make_table(rows=200)
    houses = np.repeat(np.arange(40), 5)
    rent = np.asarray(table["rent"]) + 300.0 * np.random.default_rng(0).normal(size=40)[houses]
    table = table.drop_columns(["rent"]).append_column("rent", pa.array(rent))
    table = table.append_column("house", pa.array([f"house {number}" for number in houses]))
    notes = Notes()
    trained = train_quickly(table, notes)
    assert [advice["option"] for advice in trained.spec.training["advice"]] == ["--group house"]
    assert any(line.startswith("advice: column 'house' looks like groups") for line in notes.lines)
    assert train_quickly(table, group=("house",)).spec.training["advice"] == []
