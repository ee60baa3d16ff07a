"""A prior that is a posterior: closed forms against torch.distributions and automatic differentiation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from murho.model.bbb.priors import GaussianPrior, PosteriorPrior
from murho.model.bbb.registry import make_likelihood
from tests.model.gradient_checks import assert_gradient_is_of_the_free_energy, small_network
from tests.model.oracles import kl

GROUPS = torch.zeros(30, dtype=torch.long)


def _pair(seed: int = 3, members: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mu = torch.randn(members, 30, generator=generator, dtype=torch.float64)
    sigma = torch.rand(members, 30, generator=generator, dtype=torch.float64) + 0.02
    return mu, sigma


def test_its_divergence_is_that_of_torch_distributions_summed_over_weights() -> None:
    (mu, sigma), (mean, scale) = _pair(), _pair(seed=4)
    expected = kl_divergence(Normal(mu, sigma), Normal(mean, scale))
    prior = PosteriorPrior(mean, scale)
    torch.testing.assert_close(prior.kl_gradient(mu, sigma, GROUPS)[0], expected.sum(dim=1))


def test_a_posterior_is_at_no_distance_from_itself_and_pulled_nowhere() -> None:
    mu, sigma = _pair()
    divergence, by_mu, by_sigma = PosteriorPrior(mu, sigma).kl_gradient(mu, sigma, GROUPS)
    assert float(divergence.abs().max()) < 1e-12
    assert not by_mu.any()
    assert float(by_sigma.abs().max()) < 1e-12


def test_with_mean_zero_and_one_scale_it_is_the_gaussian_prior() -> None:
    mu, sigma = _pair()
    prior = PosteriorPrior(torch.zeros_like(mu), torch.full_like(mu, 0.7))
    for ours, theirs in zip(
        prior.kl_gradient(mu, sigma, GROUPS),
        GaussianPrior(0.7).kl_gradient(mu, sigma, GROUPS),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_its_gradient_written_out_equals_automatic_differentiation() -> None:
    (mu, sigma), (mean, scale) = _pair(), _pair(seed=4)
    mu.requires_grad_()
    sigma.requires_grad_()
    prior = PosteriorPrior(mean, scale)
    expected = kl(prior, mu, sigma, GROUPS)
    by_mu, by_sigma = torch.autograd.grad(expected.sum(), (mu, sigma))
    written = prior.kl_gradient(mu.detach(), sigma.detach(), GROUPS)
    torch.testing.assert_close(written[0], expected.detach())
    torch.testing.assert_close(written[1], by_mu)
    torch.testing.assert_close(written[2], by_sigma)


@pytest.mark.parametrize(("members", "draws", "skip"), [(1, 1, False), (3, 2, True)])
def test_a_minibatch_with_it_has_the_gradient_of_its_free_energy(members: int, draws: int, skip: bool) -> None:
    likelihood = make_likelihood("heteroscedastic", members=members).double()
    network, earlier = (small_network(likelihood, members=members, skip=skip, seed=seed) for seed in (0, 7))
    prior = PosteriorPrior(earlier.mu.detach(), earlier.sigma().detach())
    assert_gradient_is_of_the_free_energy(network, likelihood, prior, draws)
