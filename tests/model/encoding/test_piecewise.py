"""The edges of the bins of a number."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from murho.model.encoding.feature_encodings import bin_edges


def test_an_empty_bin_wider_than_its_neighbours_is_one_with_them() -> None:
    speeds = np.repeat([0.1, 0.2, 0.3, 0.8, 0.9, 1.0], 20)
    np.testing.assert_array_equal(bin_edges(speeds, 16), [0.1, 0.2, 0.9, 1.0])
    beside_another = np.repeat([0.1, 0.2, 0.5, 0.8, 0.9, 1.0], 20)
    np.testing.assert_array_equal(bin_edges(beside_another, 16), [0.1, 0.2, 0.5, 0.8, 0.9, 1.0])
    one_end = np.repeat([0.1, 0.8, 0.9, 1.0], 20)
    np.testing.assert_array_equal(bin_edges(one_end, 16), [0.1, 0.9, 1.0])


def test_each_value_of_a_code_is_an_edge() -> None:
    codes = np.array([first + second for first in (600, 700, 800) for second in (1, 2, 11, 12, 21, 22)], dtype=float)
    np.testing.assert_array_equal(bin_edges(np.repeat(codes, 4), 8), codes)
    # Amounts with such gaps that hardly repeat are no codes.
    assert len(bin_edges(np.repeat(codes, 2), 8)) <= 9


def test_zeros_in_most_rows_leave_the_bins_to_the_other_values() -> None:
    rng = np.random.default_rng(0)
    amounts = np.concatenate([np.zeros(9_000), rng.uniform(100, 200, 1_000)])
    edges = bin_edges(rng.permutation(amounts), 16)
    assert edges[0] == 0
    assert len(edges) == 17
    rows, _ = np.histogram(amounts[amounts > 0], edges[1:])
    assert rows.min() > 60  # of 1,000 in 15 bins


def test_few_rows_beside_a_shared_value_get_few_bins() -> None:
    numbers = np.concatenate([np.zeros(180), np.arange(1.0, 21.0)])
    # Two for a tenth of the rows, as plain quantiles have, not one for each of 20 rows.
    np.testing.assert_array_equal(bin_edges(numbers, 16), [0, 1, 10, 20])


@given(arrays(np.float64, st.integers(1, 60), elements=st.integers(-5, 5).map(float)), st.integers(1, 8))
def test_edges_ascend_from_the_smallest_to_the_largest_number(numbers: NDArray[np.float64], most: int) -> None:
    edges = bin_edges(numbers, most)
    assert (np.diff(edges) > 0).all()
    assert (edges[0], edges[-1]) == (numbers.min(), numbers.max())
    assert np.isin(edges, numbers).all()
    assert len(edges) <= most + 1
