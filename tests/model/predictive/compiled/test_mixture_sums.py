"""Compiled sums over components: against PyTorch in double precision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from murho.model.predictive.compiled.moments import (
    component_sums,
    exact_component_sums,
    exponential,
    moment_sums,
    scaled_complement,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

REACH = np.linspace(0.0, 6.5, 1301, dtype=np.float32)


def sums(place: Doubles, precisions: Doubles, weights: Doubles) -> Doubles:
    """What `component_sums` returns, by its formulas."""
    bell = weights * precisions * np.exp(-np.square(place))
    parts = (
        weights * torch.erfc(torch.from_numpy(place)).numpy(),
        bell,
        bell * precisions * place,
        bell * np.square(precisions * place),
        bell * np.square(precisions),
    )
    return np.array([part.sum() for part in parts])


def test_the_exponential_is_right_to_a_few_units_in_the_last_place() -> None:
    values = np.linspace(-86.5, 87.5, 1741, dtype=np.float32)
    found = np.array([exponential(value) for value in values], dtype=np.float64)
    assert np.abs(found / np.exp(values.astype(np.float64)) - 1.0).max() < 2.5e-7


def test_the_scaled_complementary_error_function_is_right_to_3e_7() -> None:
    found = np.array([scaled_complement(value) for value in REACH], dtype=np.float64)
    exact = torch.special.erfcx(torch.from_numpy(REACH).double()).numpy()
    assert np.abs(found / exact - 1.0).max() < 3e-7


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("value", [-1.5, 0.0, 0.7, 6.0])
@pytest.mark.parametrize("count", [1, 5, 8, 250])
def test_sums_are_those_of_their_formulas(count: int, value: float, sign: float) -> None:
    generator = np.random.default_rng(count)
    means, precisions = generator.normal(size=count), np.exp(0.3 * generator.normal(size=count))
    weights = generator.dirichlet(np.ones(count))
    single = tuple(array.astype(np.float32) for array in (means, precisions, weights))
    found = component_sums(single[0], single[1], single[2], np.float32(value), np.float32(sign))
    means, precisions, weights = (array.astype(np.float64) for array in single)
    place = sign * precisions * (np.float32(value) - means)
    expected = sums(place, precisions, weights)
    scale = np.maximum(np.abs(expected), 1e-3)
    assert np.abs((np.array(found) - expected) / scale).max() < 5e-6


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("value", [0.3, -4.0, 12.0])
def test_exact_sums_are_those_of_numbers_that_are_not_standardised(value: float, sign: float) -> None:
    generator = np.random.default_rng(0)
    means, noise = 50.0 + 3.0 * generator.normal(size=30), np.exp(generator.normal(size=30))
    weights = generator.dirichlet(np.ones(30))
    found = exact_component_sums(means, noise, 2.0 * weights, 0.5, 50.0, 4.0, value, sign)
    precisions = 4.0 * math.sqrt(0.5) / noise
    place = sign * precisions * (value - (means - 50.0) / 4.0)
    np.testing.assert_allclose(found, sums(place, precisions, weights), rtol=1e-12)


def test_what_is_out_of_reach_counts_as_nothing_or_all() -> None:
    one = np.ones(1, dtype=np.float32)
    tail, density, *_ = component_sums(one, one, one, np.float32(1e30), np.float32(1.0))
    assert 0.0 < tail < 1e-18
    assert 0.0 < density < 1e-18
    assert component_sums(one, one, one, np.float32(1e30), np.float32(-1.0))[0] == 2.0


def test_moments_are_those_of_their_formulas() -> None:
    generator = np.random.default_rng(0)
    means, precisions, weights = (
        array.astype(np.float32)
        for array in (
            generator.normal(size=100),
            np.exp(generator.normal(size=100)),
            generator.dirichlet(np.ones(100)),
        )
    )
    third, fourth, quartic = moment_sums(means, precisions, weights)
    variance = 0.5 / np.square(precisions.astype(np.float64))
    assert math.isclose(third, (weights * (means**3.0 + 3.0 * means * variance)).sum(), rel_tol=1e-5)
    exact = (weights * (means**4.0 + 6.0 * means**2.0 * variance + 3.0 * variance**2.0)).sum()
    assert math.isclose(fourth, exact, rel_tol=1e-5)
    assert math.isclose(quartic, (weights * precisions.astype(np.float64) ** 4.0).sum(), rel_tol=1e-5)
