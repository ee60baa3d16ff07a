"""Local reparameterisation draws from the distribution that draws of the weights give."""

from __future__ import annotations

import torch
from torch.nn import functional

from murho.model.bbb.network import inverse_softplus, local_reparameterisation


def test_inverse_softplus_undoes_softplus_over_many_scales() -> None:
    values = torch.logspace(-6, 2, 50, dtype=torch.float64)
    torch.testing.assert_close(functional.softplus(inverse_softplus(values)), values)


def test_outputs_have_the_mean_and_variance_of_weight_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.tensor([[[0.5, -2.0, 1.0]]], dtype=torch.float64)
    mu = torch.randn(1, 3, 2, generator=generator, dtype=torch.float64)
    sigma = torch.rand(1, 3, 2, generator=generator, dtype=torch.float64)
    bias_mu, bias_sigma = torch.ones(1, 1, 2).double(), torch.full((1, 1, 2), 0.3).double()
    rows = inputs.expand(1, 100_000, 3)
    outputs = local_reparameterisation(rows, mu, sigma**2, bias_mu, bias_sigma**2, generator)[0]
    mean = inputs[0] @ mu[0] + bias_mu[0]
    variance = inputs[0] ** 2 @ sigma[0] ** 2 + bias_sigma[0] ** 2
    standard_error = (variance / len(outputs)).sqrt()
    assert bool(((outputs.mean(dim=0) - mean).abs() < 5.0 * standard_error).all())
    torch.testing.assert_close(outputs.var(dim=0), variance[0], rtol=0.03, atol=0.0)


def test_zero_variance_gives_the_plain_layer() -> None:
    generator = torch.Generator().manual_seed(1)
    inputs, mu = torch.randn(2, 4, 3, generator=generator), torch.randn(2, 3, 5, generator=generator)
    bias, zero = torch.randn(2, 1, 5, generator=generator), torch.zeros(())
    outputs = local_reparameterisation(inputs, mu, zero.expand_as(mu), bias, zero.expand_as(bias), generator)
    torch.testing.assert_close(outputs, inputs @ mu + bias)
