"""Closed forms against Monte Carlo and against torch.distributions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from murho.model.bbb.priors import EmpiricalBayesPrior, GaussianPrior, PosteriorPrior, Prior, ScaleMixturePrior
from tests.model.oracles import best_variance, kl, scale_mixture

if TYPE_CHECKING:
    from torch import Tensor


PRIORS = [GaussianPrior(0.7), ScaleMixturePrior(0.5, 1.5, 0.1), EmpiricalBayesPrior()]


def _kl(prior: Prior, *posterior: Any) -> Tensor:
    return prior.kl(*posterior)


def _posterior(members: int = 2, count: int = 30) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    mu = torch.randn(members, count, generator=generator, dtype=torch.float64) * 0.6
    sigma = torch.rand(members, count, generator=generator, dtype=torch.float64) * 0.5 + 0.02
    groups = torch.tensor([0] * 20 + [1] * (count - 20))
    return mu, sigma, groups


@pytest.mark.parametrize("prior", [*PRIORS, PosteriorPrior(*_posterior(members=3)[:2])])
def test_divergence_and_gradient_are_those_of_the_definition(prior: Prior) -> None:
    mu, sigma, groups = _posterior(members=3)
    mu.requires_grad_()
    sigma.requires_grad_()
    expected = kl(prior, mu, sigma, groups, torch.Generator().manual_seed(0))
    assert expected.shape == (3,)
    gradients = torch.autograd.grad(expected.sum(), (mu, sigma))
    found = prior.kl(mu, sigma, groups, torch.Generator().manual_seed(0))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), (mu, sigma)), gradients)


def test_scale_mixture_estimate_is_unbiased() -> None:
    prior = ScaleMixturePrior(0.5, 1.5, 0.1)
    mu, sigma, groups = _posterior(members=1, count=21)
    generator = torch.Generator().manual_seed(5)
    estimates = _kl(prior, mu.expand(20_000, -1), sigma.expand(20_000, -1), groups, generator)
    # The exact value, weight by weight, by quadrature over 12 sigma.
    grid = torch.linspace(-12.0, 12.0, 20_001, dtype=torch.float64)
    weights = mu[0, :, None] + sigma[0, :, None] * grid
    density = torch.exp(-0.5 * grid.square()) / math.sqrt(2.0 * math.pi)
    log_ratio = Normal(mu[0, :, None], sigma[0, :, None]).log_prob(weights) - scale_mixture(prior, mu).log_prob(weights)
    exact = torch.trapezoid(density * log_ratio, grid).sum()
    assert abs(float(estimates.mean() - exact)) < 5.0 * float(estimates.std()) / math.sqrt(20_000)


def test_empirical_bayes_variance_is_the_best_one() -> None:
    prior = EmpiricalBayesPrior()
    mu, sigma, groups = _posterior(members=1)

    def divergence(variance: Tensor) -> Tensor:
        normal = Normal(torch.zeros_like(mu), variance.sqrt()[:, groups])
        penalty = ((prior.alpha + 1.0) * variance.log() + prior.beta / variance).sum()
        return kl_divergence(Normal(mu, sigma), normal).sum() + penalty

    best = best_variance(prior, mu, sigma, groups)
    for factor in (0.9, 0.99, 1.01, 1.1):
        assert divergence(best * factor) > divergence(best)


def test_gaussian_kl_equals_its_monte_carlo_estimate() -> None:
    mu, sigma, groups = _posterior(members=1, count=21)
    generator = torch.Generator().manual_seed(11)
    weights = mu + sigma * torch.randn(200_000, 21, generator=generator, dtype=torch.float64)
    ratio = (Normal(mu, sigma).log_prob(weights) - Normal(0.0, 0.7).log_prob(weights)).sum(dim=1)
    exact = _kl(GaussianPrior(0.7), mu, sigma, groups)[0]
    assert abs(float(ratio.mean() - exact)) < 5.0 * float(ratio.std()) / math.sqrt(len(ratio))


def test_empirical_bayes_gradient_is_that_of_a_fixed_prior_of_the_best_scale() -> None:
    prior = EmpiricalBayesPrior()
    mu, sigma, groups = _posterior(members=1)
    scale = best_variance(prior, mu, sigma, groups).sqrt()[:, groups]
    fixed = mu.clone().requires_grad_()
    kl_divergence(Normal(fixed, sigma), Normal(torch.zeros_like(mu), scale)).sum().backward()
    mu.requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(_kl(prior, mu, sigma, groups).sum(), mu)[0], fixed.grad)
