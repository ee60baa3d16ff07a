from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from murho.model.tables.cells import LONGEST_TEXT
from murho.model.tables.readings import DateReading, NumberReading
from murho.model.tables.schema import Feature, FeatureKind
from murho.service.predict.rows import ABSENT, decode_cells, explain_cell

NUMERIC = Feature("x", FeatureKind.NUMERIC, None, False, 0.0, 1.0, ())
BOOLEAN = replace(NUMERIC, kind=FeatureKind.BOOLEAN)
DATE = replace(NUMERIC, kind=FeatureKind.DATE)
CATEGORICAL = Feature("x", FeatureKind.CATEGORICAL, None, False, None, None, ("a", "b"))


def optional(feature: Feature) -> Feature:
    return replace(feature, missing=True)


@pytest.mark.parametrize("cell", [True, "3", [3], {}, None, ABSENT])
def test_only_json_numbers_are_numbers(cell: Any) -> None:
    _, refused = decode_cells(NUMERIC, [1, cell, 2.5])
    assert list(refused) == [1]


def test_null_is_nan_where_the_feature_may_be_missing() -> None:
    for feature, cell in ((NUMERIC, 1), (BOOLEAN, True), (DATE, "1970-01-02")):
        values, refused = decode_cells(optional(feature), [None, cell])
        assert np.isnan(values[0])
        assert values[1] == 1.0
        assert not refused


@pytest.mark.parametrize("cell", [1, 0, "true", None])
def test_booleans_are_true_and_false_only(cell: Any) -> None:
    values, refused = decode_cells(BOOLEAN, [True, False, cell])
    assert list(refused) == [2]
    assert values[:2].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("cell", [3, "1970-13-01", "tomorrow", "1" * 100_000, None, ["1970-01-01"]])
def test_dates_are_iso_8601_strings(cell: Any) -> None:
    _, refused = decode_cells(DATE, ["1970-01-01", cell, cell])
    assert list(refused) == [1, 2]


def test_dates_become_days() -> None:
    values, refused = decode_cells(DATE, ["1970-01-11", "1970-01-01T12:00:00Z", "1970-01-11"])
    assert values.tolist() == [10.0, 0.5, 10.0]
    assert not refused


def test_numbers_that_name_categories_are_canonical() -> None:
    values, refused = decode_cells(CATEGORICAL, [4, 4.0, "4", "4.0", "a"])
    assert values.tolist() == ["4", "4", "4", "4", "a"]
    assert not refused


def test_a_text_is_no_longer_than_a_cell_holds() -> None:
    texts = ["a" * LONGEST_TEXT, "a" * (LONGEST_TEXT + 1), "é" * (LONGEST_TEXT // 2), "é" * (LONGEST_TEXT // 2 + 1)]
    _, refused = decode_cells(CATEGORICAL, texts)
    assert list(refused) == [1, 3]
    assert "the text takes 65538 bytes; a cell holds at most 65536" in explain_cell(CATEGORICAL, texts[3])


class TestReadings:
    """Where training has read texts, requests may have such texts."""

    PRICE = Feature("p", FeatureKind.NUMERIC, "$", True, 0.0, 1.0, (), reading=NumberReading(".", "$"))
    DAY = Feature("d", FeatureKind.DATE, None, False, 0.0, 1.0, (), reading=DateReading("day-first"))

    def test_texts_and_numbers_are_read(self) -> None:
        column, refused = decode_cells(self.PRICE, ["$3,504.00", 12, "13", None, "n/a"])
        assert column.tolist() == pytest.approx([3504.0, 12.0, 13.0, np.nan, np.nan], nan_ok=True)
        assert list(refused) == []
        assert decode_cells(self.PRICE, [1, 2.5])[0].tolist() == [1.0, 2.5]
        assert decode_cells(self.DAY, ["02/01/1970", "1970-01-03"])[0].tolist() == [1.0, 2.0]

    def test_what_can_not_be_read_is_refused_and_explained(self) -> None:
        assert list(decode_cells(self.PRICE, ["5 kg", True, "$1", "1e999", "9" * 100])[1]) == [0, 1, 3, 4]
        assert list(decode_cells(self.DAY, ["31/31/1970", "n/a", 5])[1]) == [0, 1, 2]
        assert explain_cell(self.PRICE, "5 EUR") == (
            "Expected a number, or null if the value is unknown, or a string as in training: '5 EUR' has the unit "
            "'EUR' in a column with the unit '$'."
        )
