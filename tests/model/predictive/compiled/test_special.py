"""Compiled functions against PyTorch's and NumPy's, in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from murho.model.compiling import complement, exponential, quick_exponential
from murho.model.predictive.compiled.forward_kernels import silu


def test_the_exponential_is_right_to_3e_14_and_stays_finite() -> None:
    values = np.concatenate((np.linspace(-690.0, 690.0, 2761), np.logspace(-15.0, 0.0, 151)))
    np.testing.assert_allclose([exponential(value) for value in values], np.exp(values), rtol=3e-14)
    assert np.isfinite([exponential(value) for value in (-1e300, 1e300)]).all()


def test_the_quick_exponential_is_right_to_single_precision() -> None:
    values = np.linspace(-87.0, 87.0, 2001, dtype=np.float32)
    np.testing.assert_allclose([quick_exponential(value) for value in values], np.exp(values.astype(float)), rtol=5e-7)


def test_the_scaled_complementary_error_function_is_right_to_1e_14() -> None:
    values = np.concatenate((np.linspace(0.0, 30.0, 3001), np.logspace(1.0, 100.0, 199)))
    found = np.array([complement(value) for value in values])
    np.testing.assert_allclose(found, torch.special.erfcx(torch.from_numpy(values)).numpy(), rtol=1e-14)


@pytest.mark.parametrize("count", [1, 7, 64, 20_001])
def test_it_is_the_silu_to_a_few_units_in_the_last_place(count: int) -> None:
    values = np.linspace(-80.0, 80.0, count, dtype=np.float32)
    exact = values.astype(np.float64) / (1.0 + np.exp(-values.astype(np.float64)))
    silu(values)
    assert (np.abs(values - exact) <= 6e-7 * np.abs(exact) + 2e-9).all()
