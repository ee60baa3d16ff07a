from __future__ import annotations

import numpy as np
import pytest

from murho.model.encoding.feature_distribution import best_shrinkage, sample_correlation


def test_a_missing_cell_does_not_weaken_a_correlation() -> None:
    generator = np.random.default_rng(0)
    first = generator.normal(size=20_000)
    scores = np.stack([first, 0.8 * first + 0.6 * generator.normal(size=20_000)], axis=1)
    scores[generator.random(scores.shape) < 0.3] = np.nan
    assert sample_correlation(scores)[0, 1] == pytest.approx(0.8, abs=0.02)


def test_correlations_over_different_rows_are_made_to_fit_together() -> None:
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(12, 10))
    scores[generator.random(scores.shape) < 0.4] = np.nan
    correlation = sample_correlation(scores)
    assert np.linalg.eigvalsh(correlation)[0] > -1e-9
    np.testing.assert_allclose(np.diagonal(correlation), 1.0)


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
