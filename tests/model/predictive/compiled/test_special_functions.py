"""Compiled functions in double precision, against PyTorch's and NumPy's."""

from __future__ import annotations

import numpy as np
import torch

from murho.model.predictive.compiled.lognormal import complement, exponential_parts


def test_both_parts_make_the_exponential_and_the_exponential_less_one() -> None:
    values = np.concatenate((np.linspace(-690.0, 690.0, 2761), np.logspace(-15.0, 0.0, 151)))
    power, less_one = np.array([exponential_parts(value) for value in values]).T
    np.testing.assert_allclose(power * less_one + power, np.exp(values), rtol=3e-14)
    np.testing.assert_allclose(power * less_one + (power - 1.0), np.expm1(values), rtol=5e-14)


def test_what_is_too_large_or_too_small_stays_finite() -> None:
    for value in (-1e300, 1e300):
        assert np.isfinite(exponential_parts(value)).all()


def test_the_scaled_complementary_error_function_is_right_to_1e_14() -> None:
    values = np.concatenate((np.linspace(0.0, 30.0, 3001), np.logspace(1.0, 100.0, 199)))
    found = np.array([complement(value) for value in values])
    np.testing.assert_allclose(found, torch.special.erfcx(torch.from_numpy(values)).numpy(), rtol=1e-14)
