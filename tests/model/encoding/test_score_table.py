from __future__ import annotations

import numpy as np
import pytest

from murho.model.encoding.quantile_scores import QuantileScores, ScoreTable

GENERATOR = np.random.default_rng(0)
COLUMNS = [GENERATOR.normal(size=500), GENERATOR.integers(0, 3, 500).astype(float), np.full(500, 7.0)]
NUMBERS = [QuantileScores.fit(column) for column in COLUMNS]
TABLE = ScoreTable.of([number for number in NUMBERS if number is not None])


def values(rows: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(rows, 3)) * 2.0


def test_scores_are_those_of_a_polygon_through_the_knots() -> None:
    first = NUMBERS[0]
    assert first is not None
    expected = np.interp(values(50)[:, 0], first.values, first.knot_scores)
    np.testing.assert_allclose(TABLE.clipped(values(50))[:, 0], expected, rtol=1e-12)


@pytest.mark.parametrize("rows", [1, 7, 300, 3000])
def test_a_row_has_the_same_scores_alone_and_in_any_batch(rows: int) -> None:
    whole = values(3000)
    np.testing.assert_array_equal(TABLE.clipped(whole[:rows]), TABLE.clipped(whole)[:rows])
    np.testing.assert_array_equal(TABLE.beyond(whole[:rows]), TABLE.beyond(whole)[:rows])


def test_beyond_the_range_a_score_goes_on_by_one_a_standard_deviation() -> None:
    column = COLUMNS[0]
    rows = np.array([[column.max() + 3.0 * column.std(), 1.0, 7.0], [column.min(), 2.0, np.nan]])
    beyond = TABLE.beyond(rows)
    assert beyond[0] == pytest.approx([3.0 / NUMBERS[0].spread, 0.0, 0.0])  # type: ignore[union-attr]
    assert beyond[1, :2].tolist() == [0.0, 0.0]
    assert np.isnan(beyond[1, 2])
    assert np.isnan(TABLE.clipped(rows)[1, 2])
    assert np.isfinite(TABLE.beyond(np.full((1, 3), 1e308))).all()
