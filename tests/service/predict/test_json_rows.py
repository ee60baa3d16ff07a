from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from murho.model.tables.cells import LONGEST_TEXT
from murho.model.tables.readings import DateReading, NumberReading
from murho.model.tables.schema import Feature, FeatureKind
from murho.service.errors import BadInputError
from murho.service.predict.json_rows import (
    ABSENT,
    MAX_LISTED,
    Form,
    Problems,
    decode_cells,
    example_row,
    explain_cell,
    parse_inputs,
)
from tests.service.support import NAMES, ROW, SCHEMA, FakeModel

OTHER: dict[str, Any] = {**ROW, "Weight": 2000, "Horsepower": None, "Origin/plant": "Japan"}
FORMS = {
    Form.RECORDS: [ROW, dict(reversed(OTHER.items()))],
    Form.MATRIX: [list(ROW.values()), list(OTHER.values())],
    Form.COLUMNS: {name: [ROW[name], OTHER[name]] for name in NAMES},
}


def problems(inputs: object) -> dict[str, str]:
    with pytest.raises(BadInputError) as caught:
        parse_inputs(inputs, SCHEMA, 1000)
    return {problem.pointer: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize("form", Form)
def test_the_three_forms_say_the_same(form: Form) -> None:
    inputs = parse_inputs(FORMS[form], SCHEMA, 1000)
    assert (inputs.form, inputs.count) == (form, 2)
    assert list(inputs.columns) == NAMES
    assert inputs.columns["Weight"].tolist() == [3000.0, 2000.0]
    assert np.isnan(inputs.columns["Horsepower"][1])
    assert inputs.columns["Automatic"].tolist() == [1.0, 1.0]
    assert inputs.columns["Origin/plant"].tolist() == ["USA", "Japan"]


@pytest.mark.parametrize("inputs", [[], {}, None, 3, "rows", True, [[]], [{}], {"Weight": []}])
def test_no_rows_are_an_error(inputs: object) -> None:
    assert problems(inputs)


def test_an_absent_feature_is_named_in_every_form() -> None:
    row = {name: cell for name, cell in ROW.items() if name != "Horsepower"}
    assert "send null" in problems([ROW, row])["/inputs/1/Horsepower"]
    assert "send null" in problems({name: [cell] for name, cell in row.items()})["/inputs/Horsepower"]


def test_ragged_rows_are_named() -> None:
    found = problems([list(ROW.values()), [1, 2], [1, 2, 3, 4, 5, 6]])
    assert set(found) == {"/inputs/1", "/inputs/2"}
    assert "2 values" in found["/inputs/1"]
    assert "Weight, Horsepower" in found["/inputs/1"]


def test_ragged_columns_are_named() -> None:
    found = problems({**{name: [ROW[name]] * 2 for name in NAMES}, "Year": [None]})
    assert "1 values, but 'Weight' has 2" in found["/inputs/Year"]


@pytest.mark.parametrize("rows", [[ROW, list(ROW.values())], [ROW, 3], [ROW, None]])
def test_rows_in_mixed_forms_are_named(rows: list[object]) -> None:
    assert set(problems(rows)) == {"/inputs/1"}


def test_unknown_features_are_explained() -> None:
    found = problems([{**ROW, "weight": 3, "Wheels": 4, "Consumption": 20.0, "zzz": 1}])
    assert "Did you mean 'Weight'" in found["/inputs/0/weight"]
    assert "left out in training (constant)" in found["/inputs/0/Wheels"]
    assert "is the target" in found["/inputs/0/Consumption"]
    assert "is not a feature of this model; leave it out" in found["/inputs/0/zzz"]
    assert len(found) == 4


@pytest.mark.parametrize("form", ["columns", "records"])
def test_hundreds_of_thousands_of_unknown_columns_are_refused(form: str) -> None:
    # Work that grows with the square of their number would run into the test's time limit.
    unknown: dict[str, Any] = {f"column {index}": [1] for index in range(300_000)}
    with pytest.raises(BadInputError) as caught:
        parse_inputs(unknown if form == "columns" else [unknown], SCHEMA, 1000)
    assert len(caught.value.problems) == 50
    assert caught.value.total == 300_005


def test_an_example_from_the_schema_is_within_the_training_range() -> None:
    row = example_row(FakeModel())
    assert SCHEMA.outside(parse_inputs([row], SCHEMA, 1).columns) == []
    assert row["Weight"] == 3000.0


@pytest.mark.parametrize(("stored", "shown"), [(ROW, ROW), ({"Weight": 1}, example_row(FakeModel()))])
def test_the_example_of_the_checkpoint_goes_first_if_it_has_all_features(stored: Any, shown: Any) -> None:
    model = FakeModel()
    model.spec = replace(model.spec, training={"example": stored})
    assert example_row(model) == shown


def test_a_feature_without_a_training_value_is_null() -> None:
    never = Feature("Never", FeatureKind.NUMERIC, None, True, None, None, ())
    assert example_row(FakeModel(schema=replace(SCHEMA, features=(never,)))) == {"Never": None}


NUMERIC = Feature("x", FeatureKind.NUMERIC, None, False, 0.0, 1.0, ())
BOOLEAN = replace(NUMERIC, kind=FeatureKind.BOOLEAN)
DATE = replace(NUMERIC, kind=FeatureKind.DATE)
CATEGORICAL = Feature("x", FeatureKind.CATEGORICAL, None, False, None, None, ("a", "b"))


def test_a_text_is_no_longer_than_a_cell_holds() -> None:
    texts = ["a" * LONGEST_TEXT, "a" * (LONGEST_TEXT + 1), "é" * (LONGEST_TEXT // 2), "é" * (LONGEST_TEXT // 2 + 1)]
    _, refused = decode_cells(CATEGORICAL, texts)
    assert list(refused) == [1, 3]
    assert "the text takes 65538 bytes; a cell holds at most 65536" in explain_cell(CATEGORICAL, texts[3])


PRICE = Feature("p", FeatureKind.NUMERIC, "$", True, 0.0, 1.0, (), reading=NumberReading(".", "$"))
DAY = Feature("d", FeatureKind.DATE, None, False, 0.0, 1.0, (), reading=DateReading("day-first"))
"""Where training has read texts, requests may have such texts."""


@pytest.mark.parametrize(
    ("feature", "good", "read", "bad"),
    [
        (NUMERIC, [1, 2.5], [1.0, 2.5], [True, "3", [3], {}, None, ABSENT]),
        (BOOLEAN, [True, False], [1.0, 0.0], [1, 0, "true", None]),
        (
            DATE,
            ["1970-01-11", "1970-01-01T12:00:00Z"],
            [10.0, 0.5],
            [3, "1970-13-01", "tomorrow", "1" * 100_000, None, ["1970-01-01"]],
        ),
        *(
            (replace(feature, missing=True), [None, cell], [np.nan, 1.0], [])
            for feature, cell in ((NUMERIC, 1), (BOOLEAN, True), (DATE, "1970-01-02"))
        ),
        (CATEGORICAL, [4, 4.0, "4", "4.0", "a"], ["4", "4", "4", "4", "a"], [None, [3]]),
        (PRICE, ["$3,504.00", 12, "13", None, "n/a"], [3504.0, 12.0, 13.0, np.nan, np.nan], ["5 kg", True, "1e999"]),
        (PRICE, [1, 2.5], [1.0, 2.5], ["9" * 100]),
        (DAY, ["02/01/1970", "1970-01-03"], [1.0, 2.0], ["31/31/1970", "n/a", 5]),
    ],
)
def test_cells_are_read_or_refused_by_the_kind_of_their_feature(
    feature: Feature, good: list[Any], read: list[Any], bad: list[Any]
) -> None:
    values, refused = decode_cells(feature, [*good, *bad])
    np.testing.assert_array_equal(values[: len(good)], np.array(read, values.dtype))
    assert list(refused) == list(range(len(good), len(good) + len(bad)))


def test_problems_come_in_the_order_of_the_rows_and_are_counted() -> None:
    found = Problems()
    found.add_rows(range(100), lambda row: f"/{row}/b", lambda _: "wrong")
    found.add(7, "/7/a", "wrong")
    with pytest.raises(BadInputError) as caught:
        found.raise_any()
    listed = [problem.pointer for problem in caught.value.problems]
    assert len(listed) == MAX_LISTED
    assert listed[6:10] == ["/6/b", "/7/b", "/7/a", "/8/b"]
    assert caught.value.total == 101
