"""How columns are read, from their cells as a whole: `model.tables.inference`, as `plan_columns` uses it."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from murho.model.errors import TableError
from murho.model.tables.cells import parse_date
from murho.model.tables.inference import far_numbers, hints_of_table, suspected_code
from murho.model.tables.overrides import ColumnOverride
from murho.model.tables.readings import DateReading
from murho.model.tables.schema import FeatureKind, Schema
from murho.model.tables.schema_inference import columns_from_table, make_schema, plan_columns, target_from_table

ROWS = 60


def table_of(**columns: Any) -> pa.Table:
    fill = {name: (list(cells) * ROWS)[:ROWS] for name, cells in columns.items()}
    return pa.table({"y": [row * 0.5 for row in range(ROWS)], "x": [(row * 7 % 5) / 2 for row in range(ROWS)], **fill})


def read(cells: Any, **options: Any) -> tuple[str, str | None, list[Any]]:
    """Kind, unit and the first three values of a column."""
    table = table_of(c=cells)
    plan = plan_columns(table, "y", **options)
    feature = plan.schema.features[-1]
    assert feature.name == "c", plan.schema.left_out
    return str(feature.kind), feature.unit, columns_from_table(table, plan.schema)["c"][:3].tolist()


@pytest.mark.parametrize(
    ("cells", "kind", "unit", "values"),
    [
        (["3.504,00 \u20ac", "4 \u20ac", "5"], "numeric", "\u20ac", [3504.0, 4.0, 5.0]),
        (["1,234", "5,678", "900"], "numeric", None, [1234.0, 5678.0, 900.0]),
        (["0,123", "5,678", "0,9"], "numeric", None, [0.123, 5.678, 0.9]),
        (["12", "-", "15.5"], "numeric", None, [12.0, None, 15.5]),
        (["12", ":", "15.5"], "numeric", None, [12.0, None, 15.5]),  # as Eurostat writes it
        (["16:15:00", "1:02:03.5", "-"], "numeric", "s", [58_500.0, 3723.5, None]),
        (["16:15", "08:05", "-"], "numeric", "min", [975.0, 485.0, None]),
    ],
)
def test_everyday_numbers_are_numbers(cells: Any, kind: str, unit: str | None, values: list[float | None]) -> None:
    found = read(cells)
    assert found[:2] == (kind, unit)
    assert found[2] == pytest.approx([np.nan if value is None else value for value in values], nan_ok=True)


def test_codes_and_durations() -> None:
    for cells in (
        ["3 lb", "4 kg", "5 oz"],
        ["1:02:03", "0:00:10", "59:30"],
        ["59:30", "61:07"],
        ["M1", "Q2"],
        ["Q5 2020", "Q1 2020"],
        ["May", "12:30", "x" * 100],
        ["10-20", "20-30"],
        ["2:1", "3:0"],
    ):
        assert read(cells)[0] == "categorical"
    assert read(["soon", "31/12/2020", "12/31/2020", "late", "never"])[0] == "categorical"
    days = pa.array([86_400_000, None, 1_500] * 20, pa.int64()).cast(pa.duration("ms"))
    assert read(days.to_pylist())[:2] == ("numeric", "s")


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["31/12/2020", "01/02/2020", "05/06/2020"], ["2020-12-31", "2020-02-01", "2020-06-05"]),
        (["12/31/2020", "01/02/2020", "05/06/2020"], ["2020-12-31", "2020-01-02", "2020-05-06"]),
        (["01/02/2020", "01/03/2020", "01/04/2020"], ["2020-02-01", "2020-03-01", "2020-04-01"]),
        (["01.02.2020", "05.06.2020", "7.8.2020"], ["2020-02-01", "2020-06-05", "2020-08-07"]),
        (
            ["2020-01-01 10:00:00 UTC", "2020-01-01", "2021-01-01T00:00:00+01:00"],
            ["2020-01-01T10:00:00Z", "2020-01-01"],
        ),
        (["2020-W31", "2021W01", "KW5/2020"], ["2020-07-27", "2021-01-04", "2020-01-27"]),
        (["2020 Q3", "Q4 2021", "2020-T2"], ["2020-07-01", "2021-10-01", "2020-04-01"]),
        (["2020M07", "2020 M1"], ["2020-07-01", "2020-01-01"]),
    ],
)
def test_dates_are_read_as_the_column_says(cells: Any, values: list[str]) -> None:
    kind, _, found = read(cells)
    assert kind == "date"
    assert found[: len(values)] == [parse_date(value) for value in values]


@pytest.mark.parametrize(
    ("name", "cells", "day"),
    [
        ("sale_date", ["10142018", "01022019"], "2018-10-14"),
        ("sale_date", [1022019, 10142018], "2019-01-02"),  # a number has lost its first zero
        ("sale_date", ["31122018", "01022019"], "2018-12-31"),
        ("c_dt", [20_200_101.0 + row % 25 for row in range(60)], "2020-01-01"),
    ],
)
def test_days_written_as_numbers_are_dates(name: str, cells: Any, day: str) -> None:
    table = table_of(**{name: cells})
    plan = plan_columns(table, "y")
    assert plan.schema.features[-1].kind == "date"
    assert columns_from_table(table, plan.schema)[name][0] == parse_date(day)


@pytest.mark.parametrize("name", ["candidate", "update_id", "holidays"])
@pytest.mark.parametrize("first", [1_132_000, 20_200_101])
def test_numbers_of_customers_are_no_days(name: str, first: int) -> None:
    for cells in (list(range(first, first + 25)), [str(number) for number in range(first, first + 25)]):
        plan = plan_columns(table_of(**{name: cells}), "y").columns[name]
        assert plan.reading is None
        assert name.endswith("_id") or "these may be dates" in plan.remarks[0]


def test_what_may_be_days_stays_numbers_with_a_hint() -> None:
    assert read([20200101, 20200102])[0] == "numeric"
    assert read(["10142018", "10152018", "10152018.5"])[0] == "numeric"
    table = table_of(date=["01022018", "03042019"])
    assert "these may be dates" in plan_columns(table, "y").columns["date"].remarks[0]
    table = table_of(date=["01022018", "03042019"])
    declared = plan_columns(table, "y", overrides={"date": ColumnOverride(FeatureKind.DATE)})
    assert declared.columns["date"].reading == DateReading("month-first")


def test_columns_learn_from_each_other_and_say_so() -> None:
    table = table_of(
        a=["1.234", "5.678"], b=["1,5", "2"], c=["03/04/2020", "05/06/2020"], d=["31/12/2020"] * 5 + ["1/2/2020"]
    )
    plan = plan_columns(table, "y", hints=hints_of_table(table, decimal=None, date_order=None))
    columns = columns_from_table(table, plan.schema)
    assert columns["a"][0] == 1234.0
    assert columns["c"][0] == parse_date("2020-04-03")
    assert "'1.234' is read as 1234, as in other columns; --decimal . reads 1.234" in plan.columns["a"].remarks[0]
    assert (
        "'03/04/2020' is read as 2020-04-03, as in other columns; --date-order month-first reads 2020-03-04"
        in plan.columns["c"].remarks[0]
    )


@pytest.mark.parametrize(
    ("cells", "parts"),
    [
        (["31/12/2020", "12/31/2020"], ["'12/31/2020' has the month first", "'31/12/2020' the day first"]),
        (["20201231", "31/12/2020", "12/31/2020"], ["'12/31/2020' has the month first", "'31/12/2020' the day first"]),
        (["1,5", "2.5"], ["'2.5' has a decimal point", "'1,5' a decimal comma"]),
        (["0.12", "12%", "0.32 %"], ["'12%' is per cent and '0.12' is not"]),
        (["1", "-1e999"], ["row 2: -inf is not finite: correct it"]),
        ([f"{row}x" for row in range(51)] + [str(row) for row in range(2000)], ["row 1: '0x' among numbers"]),
    ],
)
def test_a_feature_that_contradicts_itself_is_left_out_with_both_cells_and_a_target_refused(
    cells: Any, parts: list[str]
) -> None:
    table = pa.table({"c": cells * max(1, 40 // len(cells))})
    table = table.append_column("y", pa.array(np.arange(table.num_rows) % 7)).append_column("x", table["c"])
    table = table.set_column(2, "x", pa.array(np.arange(table.num_rows) % 5))
    left_out = plan_columns(table, "y").schema.left_out["c"]
    with pytest.raises(TableError) as caught:
        plan_columns(table, "c")
    for said in (left_out, str(caught.value)):
        assert all(part in said for part in parts), said


def test_the_schema_keeps_the_reading_and_reads_other_tables_alike() -> None:
    table = table_of(price=["$3,504.00", "$1.50"], day=["31/12/2020", "01/02/2020"], c=["1,5", "2,75"])
    table = table.set_column(0, "y", pa.array([f"{row},5 \u20ac" for row in range(ROWS)]))
    plan = plan_columns(table, "y", overrides={"price": ColumnOverride(unit="USD")})
    schema = Schema.from_json(make_schema(plan.schema, columns_from_table(table, plan.schema)).to_json())
    assert (schema.target.unit, schema.features[1].unit) == ("\u20ac", "USD")
    other = pa.table({"x": ["1"], "price": ["12"], "day": ["02/01/2021"], "c": ["1,234"], "y": ["7,25"]})
    columns = columns_from_table(other, schema)
    assert [column[0] for column in columns.values()] == [1.0, 12.0, parse_date("2021-01-02"), 1.234]
    assert target_from_table(other, schema.target)[0] == 7.25
    with pytest.raises(
        TableError, match="column 'price', row 1: '5 \u20ac' has the unit '\u20ac' in a column with the"
    ):
        columns_from_table(other.set_column(1, "price", pa.array(["5 \u20ac"])), schema)


@pytest.mark.parametrize(
    ("name", "cells", "reason"),
    [
        ("PassengerId", [row * 7 + 3 for row in range(60)], "its name says so, and each has another whole number"),
        ("Unnamed: 0", [row * 7 % 61 for row in range(60)], "its name says so"),
        ("c", [f"car {row % 40}" for row in range(60)], "its texts hardly repeat: 40 of 60 are different"),
        ("c", [f"{row * 50} lb" for row in range(60)], "it holds numbers with a unit: write the numbers"),
    ],
)
def test_the_reason_for_leaving_out_is_the_right_one(name: str, cells: Any, reason: str) -> None:
    assert reason in plan_columns(table_of(**{name: cells}), "y").schema.left_out[name]


SENSOR = np.random.default_rng(0).gamma(4.0, 0.5, 300).round(1)


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        (np.append(SENSOR, [-200.0] * 30), -200.0),
        (np.append(np.arange(300) % 30, [-1.0] * 200), -1.0),  # days since the last call, and none
        (np.append(np.arange(300) % 40, [999.0] * 5), 999.0),
        (np.append(np.arange(9000) % 40, [-999.0] * 5), -999.0),
        (np.append(SENSOR, [-200.0]), None),  # once is a slip
        (np.append(SENSOR, [-7.0] * 30), None),
        (np.clip(np.random.default_rng(0).normal(0.0, 0.5, 300), -1.0, 1.0), None),
        (np.append(np.arange(300) % 98, [99.0] * 5), None),
    ],
)
def test_a_code_is_frequent_and_far_outside(numbers: np.ndarray, code: float | None) -> None:
    assert suspected_code(numbers) == code


def test_far_numbers_are_few_and_a_hundred_times_as_far_out() -> None:
    assert far_numbers(np.append(SENSOR, [1e9, np.nan, -1e300])).tolist() == [300, 302]
    assert far_numbers(np.append(SENSOR, [1e9] * 4)).tolist() == []
    assert far_numbers(np.random.default_rng(0).pareto(1.5, 1000)).tolist() == []


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(38, 0), pa.string()])
def test_digits_that_a_number_does_not_keep_are_said_with_the_remedy(kind: pa.DataType) -> None:
    def inferred(numbers: list[int], **options: Any) -> tuple[str | None, tuple[str, ...], FeatureKind]:
        table = table_of().append_column("sensor", pa.array((numbers * ROWS)[:ROWS]).cast(kind))
        found = plan_columns(table, "y", **options).columns["sensor"]
        return found.left_out, found.remarks, found.kind

    remedy = 'in the 16 digits that a number keeps: if they are names, declare kind = "categorical" in the TOML file'
    one, two, other = 2**53, 2**53 + 1, 2**54
    assert inferred([one, two])[0] == f"its 2 different whole numbers are equal {remedy}"
    assert inferred([one, two, other])[:2] == (None, (f"different whole numbers beyond 2^53 are equal {remedy}",))
    assert inferred([one, one + 2])[:2] == (None, ())
    assert inferred([one])[0] == "every cell is the same"
    declared = {"sensor": ColumnOverride(FeatureKind.CATEGORICAL)}
    assert inferred([one, two], overrides=declared) == (None, (), FeatureKind.CATEGORICAL)
    with pytest.raises(TableError, match="is 9007199254740992 in every row in the 16 digits that a number keeps"):
        plan_columns(table_of().set_column(0, "y", pa.array([one, two] * (ROWS // 2)).cast(kind)), "y")
