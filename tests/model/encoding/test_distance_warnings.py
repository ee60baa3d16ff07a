from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.encoding.encoder import Encoder
from murho.model.encoding.feature_distribution import fit_feature_distribution
from tests.model.encoding.distribution_tables import mixed_columns, schema_of

if TYPE_CHECKING:
    from murho.model.tables.schema import UnfamiliarValue

COLUMNS = mixed_columns(500)
SCHEMA = schema_of(COLUMNS)
ENCODER = Encoder.fit(SCHEMA, COLUMNS, distribution=fit_feature_distribution(SCHEMA, COLUMNS))


def rows(**changes: list[object]) -> dict[str, np.ndarray]:
    """Rows of the middle, with changes."""
    count = len(next(iter(changes.values())))
    usual = {"first": 0.0, "second": 1.0, "kind": "A", "lift": 0.0, "day": 18_500.0}
    return {
        name: np.array(changes.get(name, [cell] * count), dtype=COLUMNS[name].dtype) for name, cell in usual.items()
    }


def warned(columns: dict[str, np.ndarray]) -> list[UnfamiliarValue]:
    return ENCODER.unlike_values(columns)


def test_an_ordinary_row_has_no_warning_nor_has_one_barely_beyond_a_range() -> None:
    barely = COLUMNS["day"].max() + 10.0
    assert warned(rows(day=[18_500.0, barely])) == []


def test_a_number_far_beyond_its_range_is_told_with_side_and_range() -> None:
    (found,) = warned(rows(day=[18_500.0, 25_000.0]))
    assert (found.row, found.feature) == (1, "day")
    assert "is above the training range" in found.message


def test_a_broken_combination_is_told_with_its_partner() -> None:
    found = warned(rows(first=[2.0], second=[0.4]))
    said = "its combination with {} is unlike the training rows"
    assert {(item.feature, item.message) for item in found} <= {
        ("first", said.format("'second'")),
        ("second", said.format("'first'")),
    }
    assert found


def test_a_row_in_a_gap_is_told_with_what_the_nearest_rows_have() -> None:
    columns = {"first": np.concatenate([np.linspace(1.0, 3.0, 200), np.linspace(7.0, 9.0, 200)])}
    columns["day"] = np.random.default_rng(0).integers(18_000, 19_000, 400).astype(np.float64)
    schema = schema_of(columns)
    encoder = Encoder.fit(schema, columns, distribution=fit_feature_distribution(schema, columns))
    asked = {"first": np.array([2.0, 4.0]), "day": np.array([18_500.0, 18_500.0])}
    (found,) = encoder.unlike_values(asked)
    assert (found.row, found.feature) == (1, "first")
    assert found.message.startswith("the row is far from every training row; the nearest ones have about 2.")


def test_a_number_that_does_not_fit_the_level_names_the_category() -> None:
    (found,) = warned(rows(first=[8.0], second=[float(np.exp(4.0))], kind=["A"]))[:1]
    assert found.feature in ("first", "second")
    assert warned(rows(first=[5.0], second=[float(np.exp(2.5))], kind=["C"])) == []


def test_an_unseen_category_is_always_told() -> None:
    (found,) = warned(rows(kind=["Z"]))
    assert found.feature == "kind"
    assert "was not seen in training" in found.message


def test_a_missing_cell_is_told_where_it_is_imputed() -> None:
    columns = rows(lift=[np.nan], kind=[None])
    assert [(item.feature, item.message.partition(";")[0]) for item in warned(columns)] == [
        ("kind", "the cell is missing"),
        ("lift", "the cell is missing"),
    ]
    refusing = Encoder.fit(schema_of(COLUMNS, imputed=False), COLUMNS, distribution=ENCODER.distribution)
    assert refusing.unlike_values(columns) == []


def test_the_encoded_rows_tell_which_have_a_warning_and_only_these_are_looked_at() -> None:
    columns = rows(first=[0.0, 2.0, 2.0], second=[1.0, 0.4, 0.4], kind=["A", "A", "Z"])
    told = ENCODER.encode(columns).told
    assert told.tolist() == [False, True, True]
    assert ENCODER.unlike_values(columns, told=told) == warned(columns)
    assert {item.row for item in ENCODER.unlike_values(columns, told=np.array([True, False, True]))} == {2}


def test_warnings_are_sorted() -> None:
    columns = rows(first=[2.0, 0.0, 2.0], second=[0.4, np.nan, 0.4], kind=["A", "Z", "A"], day=[25_000.0, 0.0, 0.0])
    every = warned(columns)
    order = [feature.name for feature in SCHEMA.features]
    assert every == sorted(every, key=lambda item: (item.row, order.index(item.feature)))


def test_an_encoder_without_numbers_tells_categories_alone() -> None:
    columns = {"kind": COLUMNS["kind"]}
    schema = schema_of(columns)
    distribution = fit_feature_distribution(schema, columns)
    encoder = Encoder.fit(schema, columns, distribution=distribution)
    unseen = {"kind": np.array(["A", "Z"], dtype=object)}
    assert [item.row for item in encoder.unlike_values(unseen)] == [1]
