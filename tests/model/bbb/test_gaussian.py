"""The base class of the Gaussian observation models."""

from __future__ import annotations

import pytest
import torch

from murho.model.bbb.numbers import GaussianNoise
from murho.model.bbb.registry import make_likelihood


@pytest.mark.parametrize(("kind", "sigma"), [("fixed", 0.3), ("homoscedastic", None), ("heteroscedastic", None)])
def test_log_density_is_that_of_a_gaussian(kind: str, sigma: float | None) -> None:
    likelihood = make_likelihood(kind, members=2, sigma=sigma)
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(2, 5, likelihood.outputs, generator=generator)
    targets = torch.randn(5, generator=generator)
    assert isinstance(likelihood, GaussianNoise)
    noise = likelihood.noise(outputs).expand(2, 5)
    expected = torch.distributions.Normal(outputs[..., 0], noise).log_prob(targets)
    torch.testing.assert_close(likelihood.log_density(outputs, targets), expected)
