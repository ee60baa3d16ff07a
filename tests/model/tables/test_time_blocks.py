"""Blocks in time."""

from __future__ import annotations

import numpy as np
import pytest

from murho.model.errors import OptionError
from murho.model.tables.splits import BASE, time_blocks


def test_the_older_half_is_the_base_and_the_newer_makes_even_blocks() -> None:
    times = np.random.default_rng(0).permutation(1_000).astype(float)
    blocks = time_blocks(times, 5, base_share=0.5)
    assert (blocks.of_rows == BASE).sum() == 500
    for block in range(5):
        inside = times[blocks.of_rows == block]
        assert len(inside) == 100
        assert inside.min() == 500 + 100 * block
    assert blocks.ahead == 100.0


def test_rows_of_the_same_time_share_a_block() -> None:
    times = np.repeat(np.arange(13.0), 30)
    blocks = time_blocks(times, 5, base_share=0.5)
    assert all(len(set(blocks.of_rows[times == time].tolist())) == 1 for time in range(13))
    assert blocks.of_rows.max() == 4


@pytest.mark.parametrize("newest", [1, 70])
def test_two_times_make_one_block(newest: int) -> None:
    times = np.array([3.0] * (100 - newest) + [5.0] * newest)
    blocks = time_blocks(times, 5, base_share=0.5)
    assert blocks.of_rows.tolist() == [BASE] * (100 - newest) + [0] * newest
    assert blocks.ahead == 2.0


def test_a_row_without_a_time_counts_as_old() -> None:
    assert time_blocks(np.array([np.nan, *np.arange(20.0)]), 5, base_share=0.5).of_rows[0] == BASE


def test_a_single_time_has_no_after() -> None:
    with pytest.raises(OptionError, match="same time"):
        time_blocks(np.full(60, 3.0), 5, base_share=0.5)
