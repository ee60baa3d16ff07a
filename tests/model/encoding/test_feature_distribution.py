from __future__ import annotations

import json

import numpy as np

from murho.model.encoding.feature_distribution import MOST_COLUMNS, FeatureDistribution, fit_feature_distribution
from murho.model.encoding.unlike import Distances
from tests.model.encoding.distribution_tables import mixed_columns, numeric_columns, schema_of

COLUMNS = mixed_columns(400)
SCHEMA = schema_of(COLUMNS)


SCORES = {"values": [1.0], "below": [0], "upto": [3], "std": 1.0, "centre": 0.0, "spread": 1.0}


def fitted() -> FeatureDistribution:
    distribution = fit_feature_distribution(SCHEMA, COLUMNS)
    assert distribution is not None
    return distribution


def test_columns_are_numbers_then_the_indicators_of_frequent_levels() -> None:
    assert fitted().owners == ("first", "second", "day", "kind", "kind", "lift")


def test_the_distance_is_the_mahalanobis_distance_given_the_levels() -> None:
    distribution = fitted()
    scores = distribution.scores(COLUMNS)
    correlation = distribution.joint
    numbers, levels = slice(0, 3), slice(3, 6)
    weights = np.linalg.solve(correlation[levels, levels], correlation[levels, numbers])
    rest = scores[:, numbers] - scores[:, levels] @ weights
    covariance = correlation[numbers, numbers] - correlation[numbers, levels] @ weights
    expected = np.sqrt((rest @ np.linalg.inv(covariance) * rest).sum(axis=1))
    np.testing.assert_allclose(distribution.mahalanobis(scores), expected, rtol=1e-8)


def test_a_row_has_the_same_distance_alone_and_in_a_batch() -> None:
    columns = {name: column.copy() for name, column in mixed_columns(300, seed=3).items()}
    columns["second"][::5] = np.nan
    columns["first"][::7] += 9.0
    whole = Distances.of(fitted(), columns)
    distribution = fitted()
    for row in range(30):
        alone = Distances.of(distribution, {name: column[row : row + 1] for name, column in columns.items()})
        np.testing.assert_allclose(alone.whole[:, 0], whole.whole[:, row], rtol=1e-12)
        np.testing.assert_allclose(alone.within[:, 0], whole.within[:, row], rtol=1e-12)


def test_a_missing_cell_does_not_count() -> None:
    distribution = fitted()
    columns = {name: column[:50].copy() for name, column in COLUMNS.items()}
    complete = Distances.of(distribution, columns)
    columns["day"] = np.full(50, np.nan)
    measured = Distances.of(distribution, columns)
    assert (measured.whole <= complete.whole + 1e-9).all()
    known = measured.whole[0]
    scores = distribution.scores(columns)[:, [0, 1, 3, 4, 5]]
    inner = np.linalg.inv(distribution.joint[np.ix_([0, 1, 3, 4, 5], [0, 1, 3, 4, 5])])
    levels = np.linalg.inv(distribution.joint[3:, 3:])
    joint = (scores @ inner * scores).sum(axis=1) - (scores[:, 2:] @ levels * scores[:, 2:]).sum(axis=1)
    np.testing.assert_allclose(known, np.sqrt(joint), rtol=1e-6)


def test_all_cells_missing_are_at_no_distance() -> None:
    columns = {
        name: np.array([None if column.dtype == object else np.nan], column.dtype) for name, column in COLUMNS.items()
    }
    np.testing.assert_allclose(Distances.of(fitted(), columns).whole, 0.0, atol=1e-9)


def test_json_gives_the_same_distances_back() -> None:
    distribution = fitted()
    again = FeatureDistribution.from_json(json.loads(json.dumps(distribution.to_json())))
    np.testing.assert_array_equal(Distances.of(again, COLUMNS).whole, Distances.of(distribution, COLUMNS).whole)
    assert again.reach == distribution.reach


def test_columns_of_a_very_wide_table_are_independent_and_take_little_space() -> None:
    columns = numeric_columns(np.random.default_rng(0).normal(size=(60, MOST_COLUMNS + 5)))
    distribution = fit_feature_distribution(schema_of(columns), columns)
    assert distribution is not None
    assert distribution.to_json()["correlation"] is None
    again = FeatureDistribution.from_json(distribution.to_json())
    np.testing.assert_array_equal(Distances.of(again, columns).whole, Distances.of(distribution, columns).whole)


def test_levels_give_way_to_numbers_in_a_wide_table() -> None:
    columns = numeric_columns(np.random.default_rng(0).normal(size=(60, MOST_COLUMNS - 1)))
    columns["kind"] = np.array(["A", "B", "C", "D"] * 15, dtype=object)
    distribution = fit_feature_distribution(schema_of(columns), columns)
    assert distribution is not None
    assert distribution.owners.count("kind") == 1
    assert len(distribution.joint) == MOST_COLUMNS


def test_a_table_of_categories_alone_has_no_distance() -> None:
    columns = {"kind": COLUMNS["kind"]}
    distribution = fit_feature_distribution(schema_of(columns), columns)
    assert distribution is not None
    assert not Distances.of(distribution, columns).whole.any()
