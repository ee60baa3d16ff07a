"""Means over rows with weights, and their standard errors with rows in units."""

from __future__ import annotations

import numpy as np
import pytest

from murho.model.evaluation.rows import RowWeights

VALUES = np.random.default_rng(0).standard_normal((60, 3))


def test_without_weights_and_units_they_are_the_textbook_ones() -> None:
    plain = RowWeights.of(60)
    np.testing.assert_allclose(plain.mean(VALUES), VALUES.mean(axis=0))
    np.testing.assert_allclose(plain.standard_error(VALUES), VALUES.std(axis=0, ddof=1) / np.sqrt(60.0))


def test_weights_are_relative_and_count_like_repeated_rows_in_a_unit() -> None:
    weights = np.tile([1.0, 2.0], 30)
    repeated = np.repeat(np.arange(60), weights.astype(int))
    weighted = RowWeights.of(60, weights=10.0 * weights)
    units = RowWeights.of(len(repeated), units=repeated)
    np.testing.assert_allclose(weighted.mean(VALUES), units.mean(VALUES[repeated]))
    np.testing.assert_allclose(weighted.standard_error(VALUES), units.standard_error(VALUES[repeated]))


def test_rows_that_come_several_times_tell_no_more_than_once() -> None:
    units = np.array(["a", "b", "c", "d"] * 15)
    four, all_rows = VALUES[:4], np.tile(VALUES[:4], (15, 1))
    np.testing.assert_allclose(
        RowWeights.of(60, units=units).standard_error(all_rows), RowWeights.of(4).standard_error(four)
    )


def test_one_unit_tells_nothing_of_the_spread() -> None:
    assert np.isinf(RowWeights.of(60, units=np.zeros(60)).standard_error(VALUES)).all()


@pytest.mark.parametrize("weights", [None, np.arange(1.0, 61.0)])
def test_a_part_of_the_rows_is_weighted_as_if_it_were_all(weights: np.ndarray | None) -> None:
    mask = np.arange(60) % 3 == 0
    part = RowWeights.of(60, weights, units=np.arange(60) // 2).of_rows(mask)
    whole = RowWeights.of(20, None if weights is None else weights[mask], units=np.arange(60)[mask] // 2)
    np.testing.assert_allclose(part.standard_error(VALUES[mask]), whole.standard_error(VALUES[mask]))
