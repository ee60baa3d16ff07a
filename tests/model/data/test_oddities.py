from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from murho.model.data.columns import canonical_column, plain
from murho.model.data.oddities import oddities
from murho.model.data.schema import FeatureKind

NUMERIC, CATEGORICAL, DATE = FeatureKind.NUMERIC, FeatureKind.CATEGORICAL, FeatureKind.DATE


def odd(cells: list[Any], kind: FeatureKind, name: str = "c") -> str:
    column = pa.chunked_array([pa.array(cells)])
    return "; ".join(oddities(name, kind, canonical_column(column, kind, name), plain(column, name)))


@pytest.mark.parametrize(
    ("cells", "kind", "name", "expected"),
    [
        ([1.5, None, None], NUMERIC, "c", "67 % of the cells are missing"),
        ([*[0.0] * 399, 1.0], NUMERIC, "c", "99.8 % of the cells are 0"),
        (["00123", "90210", "10001"], NUMERIC, "c", "'00123' looks like a code"),
        ([*np.linspace(0, 5, 50).tolist(), -999.0, -999.0], NUMERIC, "c", "-999 in 2 cells may stand for missing"),
        ([*np.linspace(0, 90, 50).tolist(), 9999.0, 9999.0], NUMERIC, "c", "9999 in 2 cells may stand for missing"),
        (list(range(5000, 5030)) * 3, NUMERIC, "subject_id", "give --group subject_id if rows of new ones"),
        (list(range(5000, 5030)), NUMERIC, "PatientID", "looks like an id (30 different numbers): give --ignore"),
        (["USA", "usa", "Japan"], CATEGORICAL, "c", "'USA' and 'usa' differ in case or blanks alone"),
        ([f"k{row}" for row in range(300)] * 2, CATEGORICAL, "c", "300 categories: the 200 most frequent"),
        (
            [f"{row} {unit}" for row in range(20) for unit in ("lb", "kg")],
            CATEGORICAL,
            "c",
            "different units ('lb', 'kg')",
        ),
        ([f"2020-01-{day:02}" for day in range(1, 31)], DATE, "day", "--time day judges the model on later rows"),
    ],
)
def test_what_is_odd_is_said(cells: list[Any], kind: FeatureKind, name: str, expected: str) -> None:
    assert expected in odd(cells, kind, name)


@pytest.mark.parametrize(
    ("cells", "kind", "name"),
    [
        (np.linspace(0, 90, 50).tolist(), NUMERIC, "width"),
        ([*range(95, 130), 99, 99], NUMERIC, "score"),
        ([-1.0, -1.0, *np.linspace(-5, 5, 50).tolist()], NUMERIC, "offset"),
        (["a", "b"] * 20, CATEGORICAL, "c"),
        (list(range(1, 7)) * 10, NUMERIC, "room_number"),
    ],
)
def test_everyday_columns_are_not_odd(cells: list[Any], kind: FeatureKind, name: str) -> None:
    assert odd(cells, kind, name) == ""
