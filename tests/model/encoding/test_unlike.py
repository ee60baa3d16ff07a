"""Inputs that are zero for training rows: of odd combinations, and of rows that no training row is near."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from murho.model.encoding.encoder import Encoder
from murho.model.encoding.feature_distribution import fit_feature_distribution
from murho.model.encoding.unlike import Distances
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from tests.model.encoding.distribution_tables import mixed_columns, numeric_columns, paired_columns, schema_of

if TYPE_CHECKING:
    from murho.model.encoding.feature_distribution import FeatureDistribution
    from murho.model.tables.schema import UnfamiliarValue


def fitted(columns: dict[str, np.ndarray]) -> FeatureDistribution:
    distribution = fit_feature_distribution(schema_of(columns), columns)
    assert distribution is not None
    return distribution


PAIRS = paired_columns()
PAIRED = fitted(PAIRS)


def with_a_gap() -> dict[str, np.ndarray]:
    """Two independent numbers; the first has no value between -1 and 1."""
    values = np.random.default_rng(0).uniform(1.0, 3.0, size=(400, 2))
    values[::2, 0] *= -1.0
    return numeric_columns(values)


GAP = with_a_gap()
GAPPED = fitted(GAP)


def rows(*values: tuple[float, ...]) -> dict[str, np.ndarray]:
    return numeric_columns(np.array(values, dtype=np.float64))


def test_the_input_of_the_combination_is_zero_for_like_rows_and_single_numbers_beyond() -> None:
    values = rows((0.0,) * 5, (0.0, 0.0, 0.0, 9.0, 0.0), (1.5, -1.5, 0.0, 0.0, 0.0), (1.5, -1.5, 0.0, 9.0, 0.0))
    measured = Distances.of(PAIRED, values)
    like, alone, combined, both = measured.combination
    assert like == alone == 0.0
    assert measured.unlike.tolist() == [False, True, True, True]
    assert combined == pytest.approx(np.log1p(measured.within[0, 2] - PAIRED.reach))
    assert both == pytest.approx(np.log1p(measured.within[0, 3] - PAIRED.reach - measured.beyond[3]))
    assert 0.0 < both < combined
    training = Distances.of(PAIRED, PAIRS)
    assert not training.combination.any()
    assert not training.unlike.any()


def test_a_row_in_a_gap_is_isolated_in_the_number_of_the_gap_and_no_training_row_is() -> None:
    found = Distances.of(GAPPED, rows((0.0, 2.0), (2.0, 2.0), (-2.0, 1.5)))
    assert found.unlike.tolist() == [True, False, False]
    assert not found.combination.any()
    assert found.differences is not None
    gap, other = np.abs(found.differences[0])
    assert gap > 3.0 * other
    assert not found.differences[1:].any()
    assert Distances.of(GAPPED, GAP).differences is None


def test_the_difference_grows_from_zero_where_the_row_is_within_reach() -> None:
    asked = rows(*((place, 2.0) for place in np.linspace(-0.9, 0.0, 40)))
    differences = Distances.of(GAPPED, asked).differences
    assert differences is not None
    sizes = np.linalg.norm(differences, axis=1)
    assert sizes[0] == 0.0
    assert sizes[-1] == sizes.max() > 0.1
    assert np.abs(np.diff(sizes)).max() < 0.1


def test_the_encoder_adds_the_difference_to_the_distance_of_that_number() -> None:
    encoder = Encoder.fit(schema_of(GAP), GAP, distribution=GAPPED)
    encoded = encoder.encode(rows((0.0, 2.0), (2.0, 2.0), (9.0, 2.0))).inputs
    place = encoder.names.index("x1 beyond the training rows")
    differences = Distances.of(GAPPED, rows((0.0, 2.0))).differences
    assert differences is not None
    assert encoded[0, place] == pytest.approx(differences[0, 0], rel=1e-6)
    assert encoded[1, place] == 0.0
    assert encoded[2, place] == pytest.approx((9.0 - GAP["x1"].max()) / GAP["x1"].std(), rel=1e-6)
    assert not encoder.encode(GAP).inputs[:, list(encoder.zero_in_training)].any()


def test_a_gap_is_found_beside_numbers_with_thin_tails() -> None:
    generator = np.random.default_rng(0)
    values = np.column_stack([generator.uniform(0.0, 7.0, 600), generator.normal(size=600)])
    values[values[:, 0] > 4.0, 0] += 3.0
    columns = numeric_columns(values)
    found = Distances.of(fitted(columns), rows((5.5, 0.0), (5.5, 1.0), (2.0, 0.0), (8.0, 2.5), (2.0, -2.5)))
    assert found.differences is not None
    assert found.differences.any(axis=1).tolist() == [True, True, False, False, False]


def test_a_missing_cell_makes_no_row_isolated() -> None:
    assert Distances.of(GAPPED, rows((np.nan, 2.0), (np.nan, np.nan))).differences is None


COLUMNS = mixed_columns(500)
SCHEMA = schema_of(COLUMNS)
ENCODER = Encoder.fit(SCHEMA, COLUMNS, distribution=fit_feature_distribution(SCHEMA, COLUMNS))


def unlike_rows(**changes: list[object]) -> dict[str, np.ndarray]:
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
    assert warned(unlike_rows(day=[18_500.0, barely])) == []


def test_a_number_far_beyond_its_range_is_told_with_side_and_range() -> None:
    (found,) = warned(unlike_rows(day=[18_500.0, 25_000.0]))
    assert (found.row, found.feature) == (1, "day")
    assert "is above the training range" in found.message


def test_a_broken_combination_is_told_with_its_partner() -> None:
    found = warned(unlike_rows(first=[2.0], second=[0.4]))
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
    (found,) = warned(unlike_rows(first=[8.0], second=[float(np.exp(4.0))], kind=["A"]))[:1]
    assert found.feature in ("first", "second")
    assert warned(unlike_rows(first=[5.0], second=[float(np.exp(2.5))], kind=["C"])) == []


def test_an_unseen_category_is_always_told() -> None:
    (found,) = warned(unlike_rows(kind=["Z"]))
    assert found.feature == "kind"
    assert "was not seen in training" in found.message


def test_a_missing_cell_is_told_where_it_is_imputed() -> None:
    columns = unlike_rows(lift=[np.nan], kind=[None])
    assert [(item.feature, item.message.partition(";")[0]) for item in warned(columns)] == [
        ("kind", "the cell is missing"),
        ("lift", "the cell is missing"),
    ]
    refusing = Encoder.fit(schema_of(COLUMNS, imputed=False), COLUMNS, distribution=ENCODER.distribution)
    assert refusing.unlike_values(columns) == []


def test_the_encoded_rows_tell_which_have_a_warning_and_only_these_are_looked_at() -> None:
    columns = unlike_rows(first=[0.0, 2.0, 2.0], second=[1.0, 0.4, 0.4], kind=["A", "A", "Z"])
    told = ENCODER.encode(columns).told
    assert told.tolist() == [False, True, True]
    assert ENCODER.unlike_values(columns, told=told) == warned(columns)
    assert {item.row for item in ENCODER.unlike_values(columns, told=np.array([True, False, True]))} == {2}


COLUMNS_WITH_DATES = {"heat": np.array([0.0, 1.0, 9.0, 10.0]), "place": np.array(["A", "B"] * 2, dtype=object)}
FEATURES = (
    Feature("heat", FeatureKind.NUMERIC, "degrees", False, 0.0, 10.0, ()),
    Feature("place", FeatureKind.CATEGORICAL, None, False, None, None, ("A", "B")),
)
ENCODER_WITH_DATES = Encoder.fit(Schema(FEATURES, Target("y", None), {}), COLUMNS_WITH_DATES)
ROWS = {"heat": np.array([4.0, 11.0, np.nan]), "place": np.array(["C", "C", "A"], dtype=object)}


def test_values_outside_the_training_range_are_listed_by_row_and_then_by_feature() -> None:
    found = [(item.row, item.feature) for item in ENCODER_WITH_DATES.unlike_values(ROWS)]
    assert found == [(0, "place"), (1, "heat"), (1, "place")]
    assert ENCODER_WITH_DATES.unlike_values(COLUMNS_WITH_DATES) == []


def distances_fitted() -> FeatureDistribution:
    columns = paired_columns()
    distribution = fit_feature_distribution(schema_of(columns), columns)
    assert distribution is not None
    return distribution


DISTRIBUTION = distances_fitted()


def named(columns: dict[str, np.ndarray]) -> list[list[tuple[str, str | None]]]:
    """The features that make the combination of each row unusual, each with the one that it fits least."""
    count = len(columns["x1"])
    found: list[list[tuple[str, str | None]]] = [[] for _ in range(count)]
    for row, name, partner in Distances.of(DISTRIBUTION, columns).odd_combinations(np.arange(count)):
        found[row].append((name, partner))
    return found


def test_the_features_of_the_broken_pair_are_named() -> None:
    first, both = named(rows((1.5, -1.5, 0.0, 0.0, 0.0), (1.5, -1.5, 1.5, 0.0, -1.5)))
    assert {frozenset(pair) for pair in first} == {frozenset(("x1", "x2"))}
    assert {frozenset(pair) for pair in both} == {frozenset(("x1", "x2")), frozenset(("x3", "x5"))}


def test_names_do_not_depend_on_the_other_rows() -> None:
    columns = numeric_columns(np.random.default_rng(1).normal(size=(200, 5)) * 3.0)
    together = named(columns)
    assert {len(found) for found in together} >= {1, 2}
    alone = [named({name: column[row : row + 1] for name, column in columns.items()}) for row in range(200)]
    assert together == [found for (found,) in alone]
