"""Fresh rows are like the training rows, and odd ones are not."""

from __future__ import annotations

import numpy as np
import pytest

from murho.model.encoding.feature_distribution import (
    MOST_COLUMNS,
    FeatureDistribution,
    QuantileScores,
    best_shrinkage,
    fit_feature_distribution,
    normal_cdf,
    normal_quantile,
    sample_correlation,
)
from murho.model.encoding.unlike import Distances
from tests.model.conftest import present
from tests.model.encoding.distribution_tables import distribution_of, mixed_columns, numeric_columns, schema_of

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


def alarms(rows: int, features: int, seed: int) -> float:
    """Share of fresh rows of the same Gaussian that are beyond reach; for odd seeds the features are correlated."""
    generator = np.random.default_rng(seed)
    mix = generator.normal(size=(features, features)) if seed % 2 else np.eye(features)
    columns = numeric_columns(generator.normal(size=(rows, features)) @ mix)
    distribution = distribution_of(columns)
    fresh = numeric_columns(generator.normal(size=(2000, features)) @ mix)
    return float((Distances.of(distribution, fresh).whole.max(axis=0) > distribution.reach).mean())


@pytest.mark.parametrize(("rows", "features"), [(100, 5), (200, 40), (1000, 40), (40, 3)])
def test_at_most_one_fresh_row_in_a_hundred_is_unlike(rows: int, features: int) -> None:
    rates = [alarms(rows, features, seed) for seed in range(10)]
    # The mean of ten tables scatters, most of all with few rows.
    assert np.mean(rates) < 0.01 + 2.0 * np.std(rates) / 10.0**0.5


def test_numbers_are_judged_given_the_levels_of_the_row() -> None:
    columns = mixed_columns(600)
    distribution = distribution_of(columns)
    row = {name: column[:2].copy() for name, column in columns.items()}
    row["first"], row["second"] = np.array([5.0, 5.0]), np.exp([2.5, 2.5])
    row["kind"] = np.array(["C", "A"], dtype=object)
    near, far = Distances.of(distribution, row).whole[0]
    assert near < distribution.reach
    assert far > 1.5 * near


def test_very_few_rows_have_no_distribution() -> None:
    columns = mixed_columns(4)
    assert fit_feature_distribution(schema_of(columns), columns) is None


def test_rows_of_a_new_group_are_like_the_training_rows_where_folds_hold_out_groups() -> None:
    def patients(count: int, seed: int) -> dict[str, np.ndarray]:
        generator = np.random.default_rng(seed)
        return numeric_columns(np.repeat(generator.normal(size=(count, 3)), 10, axis=0))

    columns = patients(60, 0)
    patient = np.repeat(np.arange(60), 10)
    by_group, at_random = distribution_of(columns, patient % 5, units=patient), distribution_of(columns)
    fresh = patients(200, 1)
    assert (Distances.of(by_group, fresh).whole.max(axis=0) > by_group.reach).mean() < 0.03
    assert (Distances.of(at_random, fresh).whole.max(axis=0) > at_random.reach).mean() > 0.5


def test_blocks_in_time_are_judged_by_earlier_rows_alone() -> None:
    columns = numeric_columns(np.linspace(0.0, 1.0, 400)[:, None])
    blocks = np.arange(400) // 80 - 1
    ahead = distribution_of(columns, blocks, forward=True)
    later = numeric_columns(np.linspace(1.0, 1.15, 50)[:, None])
    assert (Distances.of(ahead, later).whole.max(axis=0) <= ahead.reach).all()


def test_a_narrow_direction_that_held_out_rows_share_is_kept() -> None:
    generator = np.random.default_rng(0)

    def scores(count: int) -> np.ndarray:
        load = generator.normal(size=count)
        return np.stack([load, load + 1e-2 * generator.normal(size=count)], axis=1)

    shrinkage = best_shrinkage([(sample_correlation(scores(800)), scores(200)) for _ in range(5)])
    assert (1.0 - shrinkage) * np.linalg.eigvalsh(sample_correlation(scores(800)))[0] + shrinkage < 2e-4


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
