from __future__ import annotations

import numpy as np
import pytest

from murho.model.encoding.feature_scores import LevelShares
from murho.model.errors import CheckpointError
from murho.model.tables.schema import Feature, FeatureKind

KIND = Feature("kind", FeatureKind.CATEGORICAL, None, True, None, None, ("A", "B", "C", "D"))
LIFT = Feature("lift", FeatureKind.BOOLEAN, None, False, 0.0, 1.0, ())
COLUMN = np.array(["A"] * 50 + ["B"] * 30 + ["C"] * 18 + ["D"] * 2 + [None] * 5, dtype=object)


def fitted() -> LevelShares:
    shares = LevelShares.fit(KIND, COLUMN)
    assert shares is not None
    return shares


def test_shares_are_of_the_rows_with_a_value_and_rare_levels_have_no_indicator() -> None:
    assert fitted().shares.tolist() == [0.5, 0.3, 0.18, 0.02]
    assert fitted().indicated.tolist() == [1, 2]


def test_indicators_are_standardised_and_unknown_where_the_level_is() -> None:
    shares = fitted()
    codes = shares.codes(COLUMN)
    indicators = shares.indicators(codes, shares.indicated)
    assert np.nanmean(indicators, axis=0) == pytest.approx(0.0, abs=1e-12)
    assert np.nanstd(indicators, axis=0) == pytest.approx(1.0)
    assert np.isnan(indicators[-5:]).all()
    unseen = shares.indicators(shares.codes(np.array(["E"], dtype=object)), shares.indicated)
    assert np.isnan(unseen).all()


def test_codes_turn_back_into_cells() -> None:
    shares = fitted()
    assert shares.column(shares.codes(COLUMN[:100])).tolist() == COLUMN[:100].tolist()
    lift = LevelShares.fit(LIFT, np.array([0.0, 1.0, 1.0]))
    assert lift is not None
    assert lift.column(lift.codes(np.array([1.0, 0.0]))).tolist() == [1.0, 0.0]
    assert lift.codes(np.array([np.nan])).tolist() == [-1]


def test_json_gives_the_same_counts_back_and_others_are_refused() -> None:
    again = LevelShares.from_json(fitted().to_json())
    np.testing.assert_array_equal(again.counts, fitted().counts)
    assert again.levels == KIND.categories
    with pytest.raises(CheckpointError, match=r"here\.counts\[0\]: expected less than or equal to"):
        LevelShares.from_json(fitted().to_json() | {"counts": [2**70, 2, 3, 4]}, "here")
    assert LevelShares.fit(KIND, np.array([None], dtype=object)) is None
