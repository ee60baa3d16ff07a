"""Fresh rows are like the training rows, of groups and times too."""

import numpy as np
import pytest

from murho.model.encoding.distribution_fit import best_shrinkage, fit_feature_distribution, sample_correlation
from murho.model.encoding.outliers import Distances
from tests.model.encoding.distribution_tables import distribution_of, mixed_columns, numeric_columns, schema_of


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
