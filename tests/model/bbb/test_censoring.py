"""Targets at a limit: the log tail and its derivatives, near and far, in single precision too."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from murho.model.bbb.numbers import FixedNoise, HeteroscedasticNoise
from murho.model.bbb.registry import NOISE_KINDS, make_likelihood

LIMITS = (-1.0, 2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_target_at_a_limit_has_the_density_and_the_slope_of_the_tail(side: float, dtype: torch.dtype) -> None:
    reach = torch.tensor([-30.0, -3.0, 0.0, 2.0, 9.9, 10.1, 35.0], dtype=dtype)
    limit = LIMITS[1] if side > 0.0 else LIMITS[0]
    likelihood = FixedNoise(1.0)
    likelihood.limits = LIMITS
    outputs = (limit - side * reach)[None, :, None]
    log_tail, slope = likelihood.gradient(outputs, torch.full_like(reach, limit), 1.0)
    exact = reach.double().numpy()
    ratio = np.exp(stats.norm.logpdf(exact) - stats.norm.logsf(exact))
    np.testing.assert_allclose(log_tail[0], stats.norm.logsf(exact), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(slope[0, :, 0], side * ratio, rtol=1e-3, atol=1e-6)


def test_far_beyond_all_is_finite() -> None:
    likelihood = HeteroscedasticNoise()
    likelihood.limits = LIMITS
    outputs = torch.tensor([[[-1e6, 0.0], [1e6, 0.0]]])
    for term in likelihood.gradient(outputs, torch.full((2,), LIMITS[1]), 1.0, beta=0.5):
        assert bool(term.isfinite().all())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("noise", ["heteroscedastic", "mixture", "homoscedastic"])
def test_rows_pull_their_means_evenly_with_limits_too(noise: str, *, weighted: bool) -> None:
    plain, limited = (make_likelihood(noise, members=2, components=2) for _ in range(2))
    limited.limits = LIMITS
    outputs = torch.randn(2, 5, plain.outputs, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([-0.9, 0.0, 0.5, 1.0, 1.9])
    factor = torch.tensor([0.5, 2.0, 1.0, 1.0, 0.5]).unsqueeze(1) if weighted else 1.0
    for found, expected in zip(
        *(each.gradient(outputs, targets, factor, 0.5) for each in (limited, plain)), strict=True
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("noise", NOISE_KINDS)
def test_rows_inside_the_limits_are_as_without(noise: str) -> None:
    plain, limited = (make_likelihood(noise, members=1, sigma=0.3, components=2) for _ in range(2))
    limited.limits = LIMITS
    outputs = torch.randn(1, 5, plain.outputs, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([-0.9, 0.0, 0.5, 1.0, 1.9])
    torch.testing.assert_close(limited.log_density(outputs, targets), plain.log_density(outputs, targets))
    for found, expected in zip(
        limited.gradient(outputs, targets, 1.0), plain.gradient(outputs, targets, 1.0), strict=True
    ):
        torch.testing.assert_close(found, expected)
