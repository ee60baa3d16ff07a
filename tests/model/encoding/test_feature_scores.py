"""Quantile scores, and shares of the levels of a category."""

from __future__ import annotations

import numpy as np
import pytest

from murho.model.encoding.feature_distribution import LevelShares, QuantileScores, normal_cdf, normal_quantile
from murho.model.tables.schema import Feature, FeatureKind


def fitted(column: np.ndarray) -> QuantileScores:
    scores = QuantileScores.fit(column)
    assert scores is not None
    return scores


@pytest.mark.parametrize("values", [2, 5, 30])
def test_values_of_a_feature_with_few_values_are_drawn_in_their_shares(values: int) -> None:
    assert QuantileScores.fit(np.full(3, np.nan)) is None
    column = np.random.default_rng(0).integers(0, values, 500).astype(np.float64)
    grid = normal_quantile((np.arange(5000) + 0.5) / 5000)
    drawn, counts = np.unique(fitted(column).at(grid), return_counts=True)
    expected, shares = np.unique(column, return_counts=True)
    np.testing.assert_array_equal(drawn, expected)
    np.testing.assert_allclose(counts / 5000, shares / 500, atol=1e-3)


KIND = Feature("kind", FeatureKind.CATEGORICAL, None, True, None, None, ("A", "B", "C", "D"))
LIFT = Feature("lift", FeatureKind.BOOLEAN, None, False, 0.0, 1.0, ())
COLUMN = np.array(["A"] * 50 + ["B"] * 30 + ["C"] * 18 + ["D"] * 2 + [None] * 5, dtype=object)


def fitted_level_shares() -> LevelShares:
    shares = LevelShares.fit(KIND, COLUMN)
    assert shares is not None
    return shares


def test_indicators_are_standardised_and_unknown_where_the_level_is() -> None:
    shares = fitted_level_shares()
    assert shares.shares.tolist() == [0.5, 0.3, 0.18, 0.02]
    assert shares.indicated.tolist() == [1, 2]  # a rare level has none
    codes = np.array([shares.places.get(cell, -1) for cell in COLUMN.tolist()])
    indicators = shares.indicators(codes, shares.indicated)
    assert np.nanmean(indicators, axis=0) == pytest.approx(0.0, abs=1e-12)
    assert np.nanstd(indicators, axis=0) == pytest.approx(1.0)
    assert np.isnan(indicators[-5:]).all()
    unseen = shares.indicators(np.array([shares.places.get("E", -1)]), shares.indicated)
    assert np.isnan(unseen).all()


def test_scores_at_the_knots_are_normal_quantiles_of_the_rank() -> None:
    scores = fitted(np.random.default_rng(0).exponential(size=2001))
    ranks = (scores.below + scores.upto) / 2.0 / 2001.0
    np.testing.assert_allclose(normal_cdf(scores.knot_scores * scores.spread + scores.centre), ranks, atol=1e-12)
    assert abs(scores.centre) < 0.01
    assert scores.spread == pytest.approx(1.0, abs=0.02)
