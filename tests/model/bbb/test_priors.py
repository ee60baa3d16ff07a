"""Closed forms against Monte Carlo and against torch.distributions."""

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from murho.model.bbb.priors import EmpiricalBayesPrior, GaussianPrior, PosteriorPrior, Prior, ScaleMixturePrior
from tests.model.oracles import best_variance, kl

PRIORS = [GaussianPrior(0.7), ScaleMixturePrior(0.5, 1.5, 0.1), EmpiricalBayesPrior()]


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
