"""Data frames become tables whose cells and kinds are those that their owner meant."""

from typing import Any

import narwhals
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from murho.model.errors import TableError
from murho.model.python.estimators import target_name
from murho.model.python.interface import declared_kinds
from murho.model.tables.overrides import ColumnOverride
from murho.model.tables.schema import FeatureKind
from murho.model.tables.schema_inference import ColumnPlan, columns_from_table, plan_columns
from murho.model.tables.table_files import is_frame, table_from_frame

FRAME = pd.DataFrame(
    {
        "float": [1.5, np.nan, 2.5],
        "integer": [1, 2, 3],
        "nullable": pd.array([1, None, 3], dtype="Int64"),
        "truth": [True, False, True],
        "maybe": pd.array([True, None, False], dtype="boolean"),
        "text": ["b", None, "a"],
        "category": pd.Categorical(["u", None, "v"]),
        "codes": pd.Categorical([4.0, 8.0, 4.0]),
        "interval": pd.cut(pd.Series([1.0, 2.0, 9.0]), [0.0, 5.0, 10.0]),
        "day": pd.to_datetime(["2020-01-02", None, "1970-01-01"]),
        "zone": pd.to_datetime(["2020-01-02T01:00", None, "1970-01-01T01:00"]).tz_localize("Etc/GMT-1"),
    }
)
NAN = float("nan")
KINDS_AND_CELLS: dict[str, tuple[FeatureKind, list[Any]]] = {
    "float": (FeatureKind.NUMERIC, [1.5, NAN, 2.5]),
    "integer": (FeatureKind.NUMERIC, [1.0, 2.0, 3.0]),
    "nullable": (FeatureKind.NUMERIC, [1.0, NAN, 3.0]),
    "truth": (FeatureKind.BOOLEAN, [1.0, 0.0, 1.0]),
    "maybe": (FeatureKind.BOOLEAN, [1.0, NAN, 0.0]),
    "text": (FeatureKind.CATEGORICAL, ["b", None, "a"]),
    "category": (FeatureKind.CATEGORICAL, ["u", None, "v"]),
    "codes": (FeatureKind.CATEGORICAL, ["4", "8", "4"]),
    "interval": (FeatureKind.CATEGORICAL, ["(0.0, 5.0]", "(0.0, 5.0]", "(5.0, 10.0]"]),
    "day": (FeatureKind.DATE, [18263.0, NAN, 0.0]),
    "zone": (FeatureKind.DATE, [18263.0, NAN, 0.0]),
}


def plan_of(table: pa.Table) -> ColumnPlan:
    given = {name: ColumnOverride(kind) for name, kind in declared_kinds(table).items()}
    with_target = table.append_column("y", pa.array(np.arange(table.num_rows, dtype=np.float64)))
    return plan_columns(with_target, "y", overrides=given)


def kinds_of(plan: ColumnPlan) -> dict[str, FeatureKind]:
    return {feature.name: feature.kind for feature in plan.schema.features}


@pytest.mark.parametrize("name", KINDS_AND_CELLS)
def test_every_type_of_pandas_becomes_its_kind(name: str) -> None:
    table = table_from_frame(FRAME[[name]], [name])
    plan = plan_of(table)
    kind, cells = KINDS_AND_CELLS[name]
    assert kinds_of(plan) == {name: kind}
    column = columns_from_table(table, plan.schema)[name]
    if kind is FeatureKind.CATEGORICAL:
        assert column.tolist() == cells
    else:
        np.testing.assert_array_equal(column, cells)


def test_a_column_without_a_type_and_names_that_are_not_there_or_not_different_are_named() -> None:
    with pytest.raises(TableError, match="column 'mixed', of the type object"):
        table_from_frame(pd.DataFrame({"mixed": [1, "a", 2.0]}), ["mixed"])
    with pytest.raises(TableError, match="column 2 has no name"):
        table_from_frame(pd.DataFrame(np.eye(2)), ["a", " "])
    with pytest.raises(TableError, match="named 'a'"):
        table_from_frame(pd.DataFrame(np.eye(2)), ["a", "a"])


def test_the_target_takes_the_name_of_a_series_unless_a_feature_has_it() -> None:
    assert target_name(pd.Series([1.0], name="price"), ["x0"]) == "price"
    assert target_name(pd.Series([1.0], name="price"), ["price"]) == "price_"
    assert target_name(pd.Series([1.0], name=3), ["x0"]) == "y"
    assert target_name([1.0], ["y", "y_"]) == "y__"


def test_frames_of_other_libraries_come_through_arrows_interface() -> None:
    table = pa.table({"a": [1.5, None], "b": ["x", "y"]})
    assert not is_frame(table.column(0))
    for frame in (table, table.to_batches()[0], narwhals.from_native(pl.DataFrame(table.to_pydict()))):
        assert is_frame(frame)
        assert table_from_frame(frame, ["a", "b"]).to_pylist() == table.to_pylist()
    sparse = pd.DataFrame({"a": pd.arrays.SparseArray([0.0, 0.0, 1.5])})
    assert table_from_frame(sparse, ["a"]).to_pydict() == {"a": [0.0, 0.0, 1.5]}
