"""The options --group and --time: which columns they take, and what they make of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from murho.model.encoding.encoder import Encoder
from murho.model.errors import OptionError, TableError
from murho.model.tables.schema import ColumnOverride, FeatureKind
from murho.model.tables.schema_inference import columns_from_table, make_schema, plan_columns
from murho.model.training.options import make_options
from murho.model.training.rows import HoldingOut, hold_out
from tests.model.conftest import Notes, make_table, train_quickly


def _hold_out(table: pa.Table, **options: object) -> HoldingOut:
    columns = columns_from_table(table, plan_columns(table, "rent").schema)
    return hold_out(table, "rent", columns, make_options(dict(options)))


def _with(table: pa.Table, **columns: object) -> pa.Table:
    for name, column in columns.items():
        table = table.append_column(name, pa.array(column))
    return table


@pytest.mark.parametrize("groups", [np.arange(160) // 4, [f"house {number // 4}" for number in range(160)]])
def test_groups_of_numbers_or_texts_are_held_out_whole(groups: object) -> None:
    held = _hold_out(_with(make_table(), house=groups), group=("house",))
    assert held.split.units is not None
    assert held.split.units.grouped
    assert held.split.units.count == 40


def test_few_groups_are_said_to_be_few() -> None:
    held = _hold_out(_with(make_table(), house=np.arange(160) // 40), group=("house",))
    assert any("only 4 groups: bands above 80 %" in note for note in held.notes)


def test_the_order_of_the_rows_is_a_time_unless_a_column_has_the_name() -> None:
    assert _hold_out(make_table(), time="row-order").ahead == {}
    held = _hold_out(_with(make_table(), **{"row-order": np.arange(160.0)[::-1].copy()}), time="row-order")
    assert held.ahead == {"row-order": 16.0}


def test_a_date_tells_how_far_ahead_was_judged() -> None:
    days = np.datetime64("2020-01-01") + np.arange(160)
    assert _hold_out(_with(make_table(), when=days), time="when").ahead == {"when": 16.0}


def test_columns_that_are_absent_or_no_time_or_the_target_are_refused() -> None:
    with pytest.raises(TableError, match=r"the --time column 'dya'.*did you mean 'day'"):
        _hold_out(make_table(), time="dya")
    with pytest.raises(OptionError, match=r"--time district.*dates or numbers, not categorical"):
        _hold_out(make_table(), time="district")
    with pytest.raises(OptionError, match="this is the target"):
        _hold_out(make_table(), group=("rent",))
    with pytest.raises(OptionError, match="can't be combined"):
        make_options({"group": ("a",), "time": "b"})


def test_a_group_column_is_no_feature() -> None:
    table = _with(make_table(), house=[f"house {number // 4}" for number in range(160)])
    notes = Notes()
    trained = train_quickly(table, notes, group=("house",))
    assert trained.spec.schema.left_out["house"] == "it names the groups that are held out"
    assert any("40 groups" in line for line in notes.lines)
    assert trained.spec.calibration is not None


def test_rows_as_far_ahead_as_was_judged_are_within_the_range() -> None:
    """Bands are calibrated that far; beyond, doubt grows as beyond any range."""
    table = _with(make_table().drop_columns(["day"]), day=np.arange(160.0))
    plan = plan_columns(
        table, "rent", ignore=("size", "district"), overrides={"day": ColumnOverride(FeatureKind.NUMERIC)}
    )
    columns = columns_from_table(table, plan.schema)
    schema = make_schema(plan.schema, columns, hold_out(table, "rent", columns, make_options({"time": "day"})).ahead)
    assert schema.features[-1].maximum == 159.0 + 16.0
    encoder = Encoder.fit(schema, columns)
    later = {"lift": np.ones(3), "day": np.array([159.0, 175.0, 400.0])}
    beyond = encoder.encode(later).inputs[:, encoder.names.index("day beyond the training rows")]
    assert beyond[:2].tolist() == [0.0, 0.0]
    assert beyond[2] > 1.0
    assert [warning.row for warning in encoder.unlike_values(later)] == [2]


def test_a_time_that_does_not_help_is_no_feature_and_the_last_fit_takes_the_newest_rows() -> None:
    days = np.datetime64("2020-01-01") + np.arange(160)
    notes = Notes()
    trained = train_quickly(_with(make_table(), when=days), notes, time="when")
    assert notes.titles[-1] == "on the newest rows"
    assert sum("as a feature, judged on later rows" in line for line in notes.lines) == 2
    features = [feature.name for feature in trained.spec.schema.features]
    assert ("when" in features) == ("when" not in trained.spec.schema.left_out)


@pytest.mark.parametrize("members", [1, 2])
def test_row_order_trains_with_any_number_of_members(members: int) -> None:
    trained = train_quickly(make_table(), time="row-order", members=members)
    assert trained.spec.training["rows"] == 160
    assert trained.spec.calibration is not None
