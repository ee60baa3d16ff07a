"""Which targets are classes, which classes they have, and what is said of targets that can't be used."""

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from murho.model.errors import OptionError, TableError
from murho.model.tables.inference import hints_of_table, infer_column
from murho.model.tables.overrides import ColumnOverride
from murho.model.tables.schema import FeatureKind, Schema, Target
from murho.model.tables.schema_inference import (
    ColumnPlan,
    classes_of,
    columns_from_table,
    labels_from_table,
    make_schema,
    plan_columns,
    read_targets,
    row_weights,
)
from murho.model.training.options import make_options
from murho.model.training.prepared_table import prepare_table
from murho.service.predict.json_rows import decode_cells
from tests.model.conftest import make_table, schema_of_kinds
from tests.support import ROOT

CARS = ROOT / "examples" / "cars.csv"


def table_of(rows: int = 40, **columns: Any) -> pa.Table:
    """Return a table with a target ``y`` and a feature ``x`` beside the columns given, which are repeated."""
    fill = {name: (list(cells) * rows)[:rows] for name, cells in columns.items()}
    return pa.table({"y": [row * 0.5 for row in range(rows)], "x": [(row * 7 % 5) / 2 for row in range(rows)], **fill})


def kinds_of(plan: ColumnPlan) -> dict[str, FeatureKind]:
    return {feature.name: feature.kind for feature in plan.schema.features}


def kind_of(cells: Any, **options: Any) -> FeatureKind | str:
    plan = plan_columns(table_of(c=cells), "y", **options)
    return {**kinds_of(plan), **plan.schema.left_out}["c"]


def refusal(cells: Any, rows: int = 40, **options: Any) -> str:
    with pytest.raises(TableError) as caught:
        plan_columns(table_of(rows, c=cells), "y", **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.5", None, "-3e2"], "numeric"),
        (["true", "FALSE", None], "boolean"),
        (["1970-01-01", "1971-01-01T10:00:00Z"], "date"),
        (["1", "2", "a"], "categorical"),
        (["2020-01-01", "soon"], "categorical"),
        ([Decimal("1.5"), Decimal(2)], "numeric"),
        ([None, "  "], "every cell is missing"),
        (["4", "4.0"], "every cell is the same"),
        (["a", None], "categorical"),
        ([[1], [2]], "cells of the type list<item: int64> can't be used"),
        ([f"car {row}" for row in range(40)], "it identifies rows: its 40 texts are all different"),
        (range(40), "it identifies rows: it numbers them from 0"),
        ([str(row) for row in range(40, 0, -1)], "it identifies rows: it numbers them from 1"),
        (range(2, 42), "numeric"),
    ],
)
def test_kinds_are_inferred_from_the_whole_column(cells: Any, kind: str) -> None:
    assert kind_of(cells) == kind


@pytest.mark.parametrize(
    ("cells", "kind", "word"),
    [
        (["1", "2", None, "4", "5", "6", "12x", "8"], FeatureKind.NUMERIC, "12x"),
        (["1970-01-01", "1970-01-02"] * 5 + ["1970-13-01"], FeatureKind.DATE, "1970-13-01"),
        (["$1", "$2", "$3"] * 10 + ["4 lb"], FeatureKind.NUMERIC, "4 lb"),
    ],
)
def test_a_text_among_the_numbers_or_dates_of_a_feature_is_missing_and_named(
    cells: list[str | None], kind: FeatureKind, word: str
) -> None:
    table = table_of(len(cells), c=cells)
    plan = plan_columns(table, "y")
    feature = plan.schema.features[-1]
    asked = columns_from_table(table, plan.schema)["c"]
    assert (feature.kind, feature.missing, feature.missing_words) == (kind, True, (word,))
    assert np.isnan(asked).tolist() == [cell in (None, word) for cell in cells]
    remark = plan.columns["c"].remarks[0]
    assert remark.startswith(f"read as missing among {'dates' if kind is FeatureKind.DATE else 'numbers'}: {word!r}")
    assert "--ignore c" in remark


@pytest.mark.parametrize(
    ("kind", "cells", "part"),
    [
        (FeatureKind.NUMERIC, ["1", "a"], "row 2: 'a' is not a number"),
        (FeatureKind.BOOLEAN, [1, 2], "row 2: '2' is neither true nor false"),
        (FeatureKind.DATE, ["1970-01-01", "1970"], "row 2: '1970' is not an ISO 8601 date"),
        (FeatureKind.NUMERIC, [date(1970, 1, 1), date(1970, 1, 2)], "expected numbers, found dates"),
    ],
)
def test_a_cell_that_is_not_of_the_declared_kind_is_named(kind: FeatureKind, cells: Any, part: str) -> None:
    assert part in refusal(cells, overrides={"c": ColumnOverride(kind)})


class TestTarget:
    @pytest.mark.parametrize(
        ("cells", "message"),
        [
            ([None, ""], "missing in every row"),
            (["3", None], "is 3 in every row"),
            (["3", "x", "4"], "has categorical cells, and a number must be predicted"),
            (["2020-01-01", "2020-01-02"], "has date cells, .* with the days from a known date"),
        ],
    )
    def test_a_target_that_can_not_be_learned_is_refused(self, cells: Any, message: str) -> None:
        with pytest.raises(TableError, match=message):
            plan_columns(table_of(c=cells), "c")
        with pytest.raises(TableError, match="one row"):
            plan_columns(table_of(1), "y")


class TestOptions:
    def test_the_target_can_be_neither_ignored_nor_a_date(self) -> None:
        with pytest.raises(OptionError, match="can't be ignored"):
            plan_columns(table_of(), "y", ignore=["y"])
        with pytest.raises(OptionError, match=r"the ignored column 'xx' is not .*: did you mean 'x'"):
            plan_columns(table_of(), "y", ignore=["xx"])
        with pytest.raises(OptionError, match="can't be date"):
            plan_columns(table_of(), "y", overrides={"y": ColumnOverride(FeatureKind.DATE)})

    def test_a_table_with_no_feature_left_says_why(self) -> None:
        with pytest.raises(
            TableError, match="no column is left as a feature: 'x': ignored; 'c': every cell is the same"
        ):
            plan_columns(table_of(c=["a"]), "y", ignore=["x"])
        with pytest.raises(TableError, match="the target is the only column"):
            plan_columns(table_of().select(["y"]), "y")


class TestColumns:
    def test_cells_of_all_types_become_canonical(self) -> None:
        nan, numeric, dates = np.nan, FeatureKind.NUMERIC, FeatureKind.DATE
        cells: dict[str, tuple[FeatureKind, Any, list[Any]]] = {
            "float32": (numeric, pa.array([0.5, None, nan], pa.float32()), [0.5, nan, nan]),
            "seconds": (dates, pa.array([43_200, None, -86_400], pa.timestamp("s")), [0.5, nan, -1.0]),
            "zoned": (dates, pa.array([43_200_000_000_123, None, 0], pa.timestamp("ns", "No/Where")), [0.5, nan, 0.0]),
            "milliseconds": (dates, pa.array([86_400_000, None, 0], pa.date64()), [1.0, nan, 0.0]),
            "numbers": (FeatureKind.CATEGORICAL, pa.array([4.0, None, 6.5]), ["4", None, "6.5"]),
        }
        schema = schema_of_kinds(**{name: kind for name, (kind, _, _) in cells.items()})
        columns = columns_from_table(pa.table({name: given for name, (_, given, _) in cells.items()}), schema)
        for name, (_, _, expected) in cells.items():
            assert str(columns[name].tolist()) == str(expected), name

    @pytest.mark.parametrize("unit", ["s", "us"])
    def test_dates_beyond_the_calendar_are_refused(self, unit: str) -> None:
        table = pa.table({"c": pa.array([0, 10**18], pa.timestamp(unit))})
        with pytest.raises(TableError, match="column 'c': it holds dates beyond the years 1 to 9999"):
            columns_from_table(table, schema_of_kinds(c=FeatureKind.DATE))


class TestMakeSchema:
    def test_of_many_categories_the_most_frequent_are_kept(self) -> None:
        """300 texts, of which the first 200 are twice as frequent."""
        shops = [f"t{number:03d}" for number in range(300)] * 3 + [f"t{number:03d}" for number in range(200)] * 3
        table = pa.table({"shop": shops, "price": np.arange(float(len(shops)))})
        plan = plan_columns(table, "price")
        columns = columns_from_table(table, plan.schema)
        schema = make_schema(plan.schema, columns)
        assert schema.features[0].categories == tuple(f"t{number:03d}" for number in range(200))


def test_a_feature_with_no_value_in_the_training_rows_has_no_range() -> None:
    schema = schema_of_kinds(number=FeatureKind.NUMERIC, category=FeatureKind.CATEGORICAL)
    columns = {"number": np.array([np.nan]), "category": np.array([None], dtype=object)}
    number, category = make_schema(schema, columns).features
    assert (number.minimum, number.maximum, category.categories) == (None, None, ())


def table(cells: Any) -> pa.Table:
    return pa.table({"y": cells})


def test_targets_without_two_classes_or_with_too_many_are_refused() -> None:
    with pytest.raises(TableError, match="'a' in every row"):
        classes_of(labels_from_table(table(["a", "a", None]), "y"), "y")
    with pytest.raises(TableError, match="missing in every row"):
        classes_of(labels_from_table(table(["", None]), "y"), "y")
    with pytest.raises(TableError, match=r"row 2: 'c' is none of the 2 classes .*'a', 'b'"):
        read_targets(table(["a", "c"]), Target("y", None, ("a", "b")))
    with pytest.raises(TableError, match=r"1,001 different values .* at most 1,000"):
        classes_of(labels_from_table(table([f"name {number}" for number in range(1001)]), "y"), "y")


def _table(weights: list[object]) -> pa.Table:
    return pa.table({"y": [1.0, 2.0, 3.0], "w": weights})


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -0.5, 1.0], "column 'w', row 2: the weight .-0.5. is negative"),
        ([1.0, 1e80, 1.0], r"column 'w', row 2: the weight .1e\+80. is too large: give a number from 0 to 1e\+75"),
        ([1.0, 1.0, None], "column 'w', row 3: the weight is missing"),
        ([0.0, 0.0, 0.0], "all weights are zero"),
    ],
)
def test_other_weights_are_refused_by_column_and_row(weights: list[object], message: str) -> None:
    with pytest.raises(TableError, match=message):
        row_weights(_table(weights), "w", target="y")
    with pytest.raises(OptionError, match="target"):
        row_weights(_table(weights), "y", target="y")


def _schema(table: pa.Table) -> Schema:
    plan = plan_columns(table, "rent")
    return make_schema(plan.schema, columns_from_table(table, plan.schema))


@pytest.mark.parametrize("cell", ["wide", ""])
def test_a_bad_cell_is_named_by_its_row_of_the_table_and_matters_in_chosen_rows_alone(cell: str) -> None:
    table = make_table(rows=40).drop_columns(["district"])
    schema = _schema(table)
    size = ["1" if cell is None else str(cell) for cell in table.column("lift").to_pylist()]
    size[21] = cell
    bad = table.set_column(table.column_names.index("lift"), "lift", pa.array(size))
    columns_from_table(bad, schema, rows=np.array([3, 20, 22]))
    with pytest.raises(TableError, match="column 'lift', row 22: ") as caught:
        columns_from_table(bad, schema, rows=np.array([3, 20, 21]))
    assert caught.value.row == 22


def test_a_word_for_a_missing_cell_is_one_in_tables_and_requests_unless_it_is_kept() -> None:
    table = table_of(5, damage=["None", "minor", "None", "major", "NA"], code=["-200", "3.5", "1", "-200.0", "2"])

    def cells_of(name: str, **given: Any) -> str:
        plan = plan_columns(table, "y", hints=hints_of_table(table, **given))
        columns = columns_from_table(table, plan.schema)
        schema = make_schema(plan.schema, columns)
        (feature,) = (each for each in schema.features if each.name == name)
        requested = [float(cell) if name == "code" else cell for cell in table.column(name).to_pylist()]
        asked, refused = decode_cells(feature, requested)
        assert not refused
        again = columns_from_table(table, schema)[name]  # as a file to predict is read
        assert [str(cell) for cell in asked] == [str(cell) for cell in columns[name]] == [str(cell) for cell in again]
        return str(columns[name].tolist())

    assert cells_of("damage") == "[None, 'minor', None, 'major', None]"
    assert cells_of("damage", keep=["damage=None"]) == "['None', 'minor', 'None', 'major', None]"
    assert cells_of("code", missing_value=["code=-200", "damage=minor"]) == "[nan, 3.5, 1.0, nan, 2.0]"
    assert "minor" not in cells_of("damage", missing_value=["minor"])
    remark = infer_column(table.column("damage"), "damage").remarks[0]
    assert remark == "'None', 2 cells, is read as a missing value; if it is a category, give --keep None"


def test_bad_targets_are_left_out_on_request_and_zeros_and_ones_are_classes() -> None:
    table = table_of(12, y=[*map(str, range(11)), "TBD"])
    with pytest.raises(TableError, match="'TBD' among numbers"):
        prepare_table(table, "y", make_options({}))
    prepared = prepare_table(table, "y", make_options({"drop_bad_rows": True}))
    assert np.isnan(prepared.targets).tolist() == [False] * 11 + [True]
    assert prepared.notes == ("rows with the target 'TBD' are left out",)
    assert prepared.plan.schema.target.missing_words == ("TBD",)
    for cells, classes in ((["0", "1"], ("0", "1")), (["0", "1", "2"], None), (["1", "2"], None)):
        prepared = prepare_table(table_of(y=cells), "y", make_options({}))
        assert prepared.plan.schema.target.classes == classes
    assert prepare_table(table_of(y=["0", "1"]), "y", make_options({"task": "regression"})).notes == ()
