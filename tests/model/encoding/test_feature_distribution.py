"""Fresh rows are like the training rows, and odd ones are not."""

from __future__ import annotations

import numpy as np
import pytest

from murho.model.encoding.feature_distribution import (
    MOST_COLUMNS,
    FeatureDistribution,
    best_shrinkage,
    fit_feature_distribution,
    reach_of,
    sample_correlation,
)
from murho.model.encoding.unlike import Distances
from tests.model.encoding.distribution_tables import mixed_columns, numeric_columns, schema_of

COLUMNS = mixed_columns(400)
SCHEMA = schema_of(COLUMNS)


def fitted() -> FeatureDistribution:
    distribution = fit_feature_distribution(SCHEMA, COLUMNS)
    assert distribution is not None
    return distribution


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
    distribution = fit_feature_distribution(schema_of(columns), columns)
    assert distribution is not None
    assert distribution.to_json()["correlation"] is None
    again = FeatureDistribution.from_json(distribution.to_json())
    np.testing.assert_array_equal(Distances.of(again, columns).whole, Distances.of(distribution, columns).whole)


def test_a_table_of_categories_alone_has_no_distance() -> None:
    columns = {"kind": COLUMNS["kind"]}
    distribution = fit_feature_distribution(schema_of(columns), columns)
    assert distribution is not None
    assert not Distances.of(distribution, columns).whole.any()


def alarms(rows: int, features: int, seed: int) -> float:
    """Share of fresh rows of the same Gaussian that are beyond reach; for odd seeds the features are correlated."""
    generator = np.random.default_rng(seed)
    mix = generator.normal(size=(features, features)) if seed % 2 else np.eye(features)
    columns = numeric_columns(generator.normal(size=(rows, features)) @ mix)
    distribution = fit_feature_distribution(schema_of(columns), columns)
    assert distribution is not None
    fresh = numeric_columns(generator.normal(size=(2000, features)) @ mix)
    return float((Distances.of(distribution, fresh).whole.max(axis=0) > distribution.reach).mean())


@pytest.mark.parametrize(("rows", "features"), [(100, 5), (200, 40), (1000, 40), (40, 3)])
def test_at_most_one_fresh_row_in_a_hundred_is_unlike(rows: int, features: int) -> None:
    rates = [alarms(rows, features, seed) for seed in range(10)]
    # The mean of ten tables scatters, most of all with few rows.
    assert np.mean(rates) < 0.01 + 2.0 * np.std(rates) / 10.0**0.5


def test_numbers_are_judged_given_the_levels_of_the_row() -> None:
    columns = mixed_columns(600)
    distribution = fit_feature_distribution(schema_of(columns), columns)
    assert distribution is not None
    row = {name: column[:2].copy() for name, column in columns.items()}
    row["first"], row["second"] = np.array([5.0, 5.0]), np.exp([2.5, 2.5])
    row["kind"] = np.array(["C", "A"], dtype=object)
    near, far = Distances.of(distribution, row).whole[0]
    assert near < distribution.reach
    assert far > 1.5 * near


def test_the_reach_is_a_conformal_quantile_and_goes_on_beyond_few_distances() -> None:
    distances = np.random.default_rng(0).permutation(np.arange(1.0, 1000.0))
    assert reach_of(distances) == 990.0
    generator = np.random.default_rng(0)
    missed = []
    for _ in range(300):
        drawn = np.linalg.norm(generator.normal(size=(30, 4)), axis=1)
        fresh = np.linalg.norm(generator.normal(size=(200, 4)), axis=1)
        missed.append((fresh > reach_of(drawn)).mean())
        assert reach_of(drawn) >= drawn.max()
    assert 0.001 < np.mean(missed) < 0.01


def test_very_few_rows_have_no_distribution() -> None:
    columns = mixed_columns(4)
    assert fit_feature_distribution(schema_of(columns), columns) is None


def test_rows_of_a_new_group_are_like_the_training_rows_where_folds_hold_out_groups() -> None:
    def patients(count: int, seed: int) -> dict[str, np.ndarray]:
        generator = np.random.default_rng(seed)
        return numeric_columns(np.repeat(generator.normal(size=(count, 3)), 10, axis=0))

    columns = patients(60, 0)
    patient = np.repeat(np.arange(60), 10)
    by_group = fit_feature_distribution(schema_of(columns), columns, patient % 5, units=patient)
    at_random = fit_feature_distribution(schema_of(columns), columns)
    assert by_group is not None
    assert at_random is not None
    fresh = patients(200, 1)
    assert (Distances.of(by_group, fresh).whole.max(axis=0) > by_group.reach).mean() < 0.03
    assert (Distances.of(at_random, fresh).whole.max(axis=0) > at_random.reach).mean() > 0.5


def test_blocks_in_time_are_judged_by_earlier_rows_alone() -> None:
    columns = numeric_columns(np.linspace(0.0, 1.0, 400)[:, None])
    blocks = np.arange(400) // 80 - 1
    ahead = fit_feature_distribution(schema_of(columns), columns, blocks, forward=True)
    assert ahead is not None
    later = numeric_columns(np.linspace(1.0, 1.15, 50)[:, None])
    assert (Distances.of(ahead, later).whole.max(axis=0) <= ahead.reach).all()


@pytest.mark.parametrize(("rows", "least", "most"), [(40, 0.1, 1.0), (20_000, 1e-6, 0.01)])
def test_few_rows_are_shrunk_and_many_are_not(rows: int, least: float, most: float) -> None:
    generator = np.random.default_rng(0)
    mix = np.eye(20) + 0.3 * generator.normal(size=(20, 20))

    def scores(count: int) -> np.ndarray:
        drawn = generator.normal(size=(count, 20)) @ mix
        return np.asarray(drawn / drawn.std(axis=0))

    folds = [(sample_correlation(scores(rows)), scores(rows // 4)) for _ in range(5)]
    assert least <= best_shrinkage(folds) <= most


def test_a_narrow_direction_that_held_out_rows_share_is_kept() -> None:
    generator = np.random.default_rng(0)

    def scores(count: int) -> np.ndarray:
        load = generator.normal(size=count)
        return np.stack([load, load + 1e-2 * generator.normal(size=count)], axis=1)

    shrinkage = best_shrinkage([(sample_correlation(scores(800)), scores(200)) for _ in range(5)])
    assert (1.0 - shrinkage) * np.linalg.eigvalsh(sample_correlation(scores(800)))[0] + shrinkage < 2e-4
