"""The data report of a table on its way into a training."""

import numpy as np
import orjson
import pyarrow as pa
import pytest

from murho.model.errors import TableError
from murho.model.tables.data_report import report_lines
from murho.model.tables.formats import with_notes
from murho.model.tables.splits import MOST_HELD_OUT
from murho.model.training import prepared_table
from murho.model.training.options import TrainOptions, make_options
from murho.model.training.prepared_table import (
    PreparedTable,
    held_out_within_budget,
    prepare_table,
    rows_for_budget,
    rows_within_budget,
)
from murho.model.training.train import train
from tests.model.conftest import Notes, make_table, present

ROWS = 60
TABLE = with_notes(
    pa.table(
        {
            "price": [f"${row + 1},{row * 13 % 900 + 100}.50" if row else None for row in range(ROWS)],
            "weight": [f"{row * 37 % 50 + 50}%" for row in range(ROWS)],
            "sold": [f"{row % 28 + 1:02}/{row // 28 + 1:02}/2020" for row in range(ROWS)],
            "open": [f"0{row % 9 + 1}/0{row % 7 + 1}/2021" for row in range(ROWS)],
            "origin": ["Japan", "USA", "USA"] * (ROWS // 3),
            "name": [f"car {row}" for row in range(ROWS)],
            "empty": [None] * ROWS,
            "group": [row // 6 for row in range(ROWS)],
            "w": [1.0 + row % 2 for row in range(ROWS)],
        }
    ),
    ["the file is in UTF-16"],
)
OPTIONS = make_options({"group": ["group"], "weight": "w"})


def test_the_report_has_every_column_with_its_kind_range_and_example() -> None:
    data = orjson.loads(orjson.dumps(prepare_table(TABLE, "price", OPTIONS).report().to_json()))
    assert (data["rows"], data["notes"]) == (ROWS, ["the file is in UTF-16"])
    columns = {column["name"]: column for column in data["columns"]}
    assert list(columns) == TABLE.column_names
    assert {name: column["role"] for name, column in columns.items()} == {
        "price": "target",
        **dict.fromkeys(("weight", "sold", "open", "origin"), "feature"),
        **dict.fromkeys(("name", "empty", "group"), "left out"),
        "w": "weight",
    }
    price = {"unit": "$", "kind": "numeric", "missing": 1, "example": "$2,113.50", "range": [2113.5, 60867.5]}
    assert price.items() <= columns["price"].items()
    assert columns["price"]["reading"] == {"decimal": ".", "unit": "$", "form": "number"}
    assert columns["sold"]["range"] == ["2020-01-01", "2020-03-04"]
    assert (columns["origin"]["categories"], columns["origin"]["different"]) == (["USA", "Japan"], 2)


def test_a_narrow_terminal_gets_narrow_lines_with_all_that_is_said() -> None:
    report = prepare_table(TABLE, "price", OPTIONS).report()
    lines = report_lines(report, "cars.csv", 60)
    assert max(map(len, lines)) <= 60
    wide = report_lines(report, "cars.csv")
    said = [line.strip() for line in wide if line.startswith("      ")]
    assert all(text in " ".join(" ".join(lines).split()) for text in said)


def test_options_of_reading_reach_the_columns() -> None:
    options = make_options({"decimal": ",", "date_order": "month-first"})
    table = pa.table({"y": ["1,234", "5,678", "9,012"], "d": ["03/04/2020", "05/06/2020", "01/02/2021"]})
    prepared = prepare_table(table, "y", options)
    assert prepared.targets.tolist() == [1.234, 5.678, 9.012]
    assert prepared.columns["d"][0] == 18325.0
    assert prepared.plan.columns["d"].remarks == ()
    with pytest.raises(TableError, match="the target 'z' is not a column"):
        prepare_table(table, "z", options)


SAMPLED_FROM = 300
SCALE = 1.37  # whole numbers in order would be the number of the row


def prepared(options: TrainOptions, *, classes: bool = False) -> PreparedTable:
    numbers = np.arange(SAMPLED_FROM, dtype=np.float64)
    target = np.where(numbers % 100 == 7, "rare", "frequent") if classes else np.where(numbers < 200, numbers, np.nan)
    cells = pa.array(target) if classes else pa.array(target, from_pandas=True)
    return prepare_table(pa.table({"x": SCALE * numbers, "y": cells}), "y", options)


@pytest.mark.parametrize(
    ("given", "rows", "used"),
    [
        ({}, 2_000_000, 2_000_000),
        ({"budget": 60.0}, 2_000_000, 30_000),
        ({"budget": 60.0}, 10_000, 10_000),
        ({"budget": 1.0}, 2_000_000, 20_000),
        ({"quick": True}, 2_000_000, 22_500),
        ({"quick": True}, 1_000, 1_000),
    ],
)
def test_rows_are_left_out_only_where_the_time_is_short(given: dict[str, object], rows: int, used: int) -> None:
    assert rows_within_budget(rows, make_options(given)) == used


def test_rows_with_a_target_are_drawn_by_the_seed_in_the_order_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_table, "FEWEST_SAMPLED_ROWS", 50)
    options = make_options({"budget": 0.1, "seed": 4})
    first, second = (rows_for_budget(prepared(options)) for _ in range(2))
    drawn = present(first.rows)
    assert len(drawn) == first.table.num_rows == 50
    assert (first.targets == drawn).all()
    assert (first.columns["x"] == SCALE * drawn).all()
    assert (np.diff(drawn) > 0).all()
    np.testing.assert_array_equal(drawn, second.rows)
    assert "learns from 50 of 200 rows" in first.notes[-1]
    assert rows_for_budget(first) is first
    assert held_out_within_budget(first) == 2_000 < MOST_HELD_OUT


def test_rare_classes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_table, "FEWEST_SAMPLED_ROWS", 80)
    options = make_options({"budget": 0.1})
    whole = prepared(options, classes=True)
    sample = rows_for_budget(whole)
    rare = present(whole.plan.schema.target.classes).index("rare")
    assert (sample.targets == rare).sum() == 3
    assert len(sample.targets) == 80


def test_a_training_on_a_sample_names_rows_as_the_file_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_table, "FEWEST_SAMPLED_ROWS", 100)
    notes = Notes()
    options = make_options({"epochs": 3, "hidden": (4,), "members": 2, "quick": True})
    monkeypatch.setattr(prepared_table, "ROWS_A_SECOND", 1)
    trained = train(make_table(rows=400), "rent", options, reporter=notes)
    assert trained.spec.training["rows"] == len(trained.evidence.row_numbers) == 100
    assert trained.evidence.row_numbers.max() > 100
    assert any("learns from 100 of 400 rows" in line for line in notes.lines)
