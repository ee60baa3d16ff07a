"""Fresh rows are like the training rows, and odd ones are not."""

import numpy as np
import pytest

from murho.model.encoding.feature_distribution import (
    MOST_COLUMNS,
    FeatureDistribution,
    QuantileScores,
    normal_cdf,
    normal_quantile,
)
from murho.model.encoding.outliers import Distances
from tests.model.conftest import present
from tests.model.encoding.distribution_tables import distribution_of, mixed_columns, numeric_columns

COLUMNS = mixed_columns(400)


def test_a_missing_cell_does_not_count() -> None:
    distribution = distribution_of(COLUMNS)
    columns = {name: column[:50].copy() for name, column in COLUMNS.items()}
    complete = Distances.of(distribution, columns)
    columns["day"] = np.full(50, np.nan)
    measured = Distances.of(distribution, columns)
    assert (measured.whole[0] <= complete.whole[0] + 1e-9).all()
    known = measured.whole[0]
    scores = distribution.scores(columns)[:, [0, 1, 3, 4, 5]]
    inner = np.linalg.inv(distribution.joint[np.ix_([0, 1, 3, 4, 5], [0, 1, 3, 4, 5])])
    levels = np.linalg.inv(distribution.joint[3:, 3:])
    joint = (scores @ inner * scores).sum(axis=1) - (scores[:, 2:] @ levels * scores[:, 2:]).sum(axis=1)
    np.testing.assert_allclose(known, np.sqrt(joint), rtol=1e-6)


def test_columns_of_a_very_wide_table_are_independent_and_take_little_space() -> None:
    columns = numeric_columns(np.random.default_rng(0).normal(size=(60, MOST_COLUMNS + 5)))
    columns["kind"] = np.array(["A", "B", "C", "D"] * 15, dtype=object)
    distribution = distribution_of(columns)
    assert distribution.to_json()["correlation"] is None
    again = FeatureDistribution.from_json(distribution.to_json())
    np.testing.assert_array_equal(Distances.of(again, columns).whole, Distances.of(distribution, columns).whole)


def test_a_table_of_categories_alone_has_no_distance() -> None:
    columns = {"kind": COLUMNS["kind"]}
    distribution = distribution_of(columns)
    assert not Distances.of(distribution, columns).whole.any()


def test_numbers_are_judged_given_the_levels_of_the_row() -> None:
    columns = mixed_columns(600)
    distribution = distribution_of(columns)
    row = {name: column[:2].copy() for name, column in columns.items()}
    row["first"], row["second"] = np.array([5.0, 5.0]), np.exp([2.5, 2.5])
    row["kind"] = np.array(["C", "A"], dtype=object)
    near, far = Distances.of(distribution, row).whole[0]
    assert near < distribution.reach
    assert far > 1.5 * near


@pytest.mark.parametrize("values", [2, 5, 30])
def test_values_of_a_feature_with_few_values_are_drawn_in_their_shares(values: int) -> None:
    assert QuantileScores.fit(np.full(3, np.nan)) is None
    column = np.random.default_rng(0).integers(0, values, 500).astype(np.float64)
    grid = normal_quantile((np.arange(5000) + 0.5) / 5000)
    drawn, counts = np.unique(present(QuantileScores.fit(column)).at(grid), return_counts=True)
    expected, shares = np.unique(column, return_counts=True)
    np.testing.assert_array_equal(drawn, expected)
    np.testing.assert_allclose(counts / 5000, shares / 500, atol=1e-3)


def test_scores_at_the_knots_are_normal_quantiles_of_the_rank() -> None:
    scores = present(QuantileScores.fit(np.random.default_rng(0).exponential(size=2001)))
    ranks = (scores.below + scores.upto) / 2.0 / 2001.0
    np.testing.assert_allclose(normal_cdf(scores.knot_scores * scores.spread + scores.centre), ranks, atol=1e-12)
    assert abs(scores.centre) < 0.01
    assert scores.spread == pytest.approx(1.0, abs=0.02)
