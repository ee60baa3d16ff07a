"""The gradient written out equals the one of automatic differentiation, for every combination of parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from murho.model.bbb.free_energy import GradientStep
from murho.model.bbb.network import ACTIVATIONS, Architecture, BayesianNetwork
from murho.model.bbb.priors import EmpiricalBayesPrior, GaussianPrior, ScaleMixturePrior
from murho.model.bbb.registry import NOISE_KINDS, make_likelihood
from tests.model.conftest import present
from tests.model.gradient_checks import assert_gradient_is_of_the_free_energy, small_network

if TYPE_CHECKING:
    from murho.model.bbb.priors import Prior


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("noise", NOISE_KINDS)
@pytest.mark.parametrize("prior", [GaussianPrior(0.7), ScaleMixturePrior(0.3, 1.5, 0.1), EmpiricalBayesPrior()])
@pytest.mark.parametrize(("members", "draws", "skip"), [(1, 1, False), (3, 2, True)])
def test_loss_and_gradient_equal_automatic_differentiation(
    activation: str, noise: str, prior: Prior, members: int, draws: int, skip: bool
) -> None:
    likelihood = make_likelihood(noise, members=members, sigma=0.3, components=2).double()
    network = small_network(likelihood, activation=activation, members=members, skip=skip)
    with torch.no_grad():
        network.rho.add_(1.5)
    assert_gradient_is_of_the_free_energy(network, likelihood, prior, draws)


@pytest.mark.parametrize("noise", NOISE_KINDS)
@pytest.mark.parametrize(("members", "draws"), [(1, 1), (3, 2)])
def test_with_weights_too(noise: str, members: int, draws: int) -> None:
    likelihood = make_likelihood(noise, members=members, sigma=0.3, components=2).double()
    network = small_network(likelihood, members=members, skip=True)
    assert_gradient_is_of_the_free_energy(network, likelihood, EmpiricalBayesPrior(), draws, weighted=True)


@pytest.mark.parametrize("noise", NOISE_KINDS)
@pytest.mark.parametrize("limits", [(-0.3, 0.4), (-float("inf"), 0.1)])
def test_with_targets_at_a_limit_too(noise: str, limits: tuple[float, float]) -> None:
    likelihood = make_likelihood(noise, members=2, sigma=0.3, components=2).double()
    likelihood.limits = limits
    network = small_network(likelihood, members=2, skip=True)
    assert_gradient_is_of_the_free_energy(network, likelihood, EmpiricalBayesPrior(), 2, weighted=True)


@pytest.mark.parametrize("noise", NOISE_KINDS)
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_row_of_weight_two_counts_as_the_row_twice(noise: str, beta: float) -> None:
    likelihood = make_likelihood(noise, members=2, sigma=0.3, components=2).double()
    network = small_network(likelihood, members=2, skip=True)
    with torch.no_grad():
        network.rho.fill_(-40.0)  # no draw differs from the next
    generator = torch.Generator().manual_seed(4)
    rows, targets = torch.randn(6, 4, generator=generator).double(), torch.randn(6, generator=generator).double()
    counts = torch.tensor([2, 1, 1, 3, 1, 1])
    found = []
    for inputs, observed, weights in (
        (rows, targets, counts.double()),
        (rows.repeat_interleave(counts, dim=0), targets.repeat_interleave(counts), None),
    ):
        step = GradientStep(network, likelihood, GaussianPrior(), total_rows=9)
        energy = step(inputs, observed, weights, kl_weight=1.0, minibatches=1, beta=beta)
        gradients = [present(parameter.grad).clone() for parameter in (network.mu, *likelihood.parameters())]
        found.append([energy.loss, energy.kl, *gradients])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def test_a_second_minibatch_leaves_nothing_of_the_first() -> None:
    likelihood = make_likelihood("homoscedastic", members=1)
    network = BayesianNetwork(Architecture(2, (3,), 1), torch.Generator().manual_seed(0))
    step = GradientStep(network, likelihood, GaussianPrior(), total_rows=10)
    rows, targets = torch.ones(5, 2), torch.ones(5)
    gradients = []
    for _ in range(2):
        step(rows, targets, kl_weight=1.0, minibatches=1, generator=torch.Generator().manual_seed(3))
        assert network.mu.grad is not None
        gradients.append(network.mu.grad.clone())
    assert torch.equal(*gradients)


def test_the_kl_of_a_member_with_half_of_the_rows_counts_twice() -> None:
    """A row counts the same for all members, so the prior weighs more for a member with fewer rows."""
    likelihood = make_likelihood("fixed", members=2, sigma=0.5)
    network = BayesianNetwork(Architecture(2, (3,), 1, members=2), torch.Generator().manual_seed(0))
    rows, targets = torch.ones(5, 2), torch.ones(5)
    gradients = {}
    for name, ratios, temperature in (("even", None, 1.0), ("twice", None, 2.0), ("uneven", [2.0, 1.0], 1.0)):
        kl_ratios = None if ratios is None else torch.tensor(ratios)
        step = GradientStep(network, likelihood, GaussianPrior(), total_rows=10, kl_ratios=kl_ratios)
        generator = torch.Generator().manual_seed(3)
        step(rows, targets, kl_weight=1.0, minibatches=1, temperature=temperature, generator=generator)
        assert network.mu.grad is not None
        gradients[name] = network.mu.grad.clone()
    torch.testing.assert_close(gradients["uneven"][0], gradients["twice"][0])
    torch.testing.assert_close(gradients["uneven"][1], gradients["even"][1])
