"""Small networks, and whether the gradient of a step is that of the free energy's definition."""

from typing import Any

import torch

from murho.model.bbb.free_energy import GradientStep
from murho.model.bbb.likelihood import Likelihood
from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.bbb.priors import Prior
from tests.model.oracles import free_energy

INPUTS = 4


def small_network(
    likelihood: Likelihood, *, activation: str = "silu", members: int, skip: bool, seed: int = 0
) -> BayesianNetwork:
    """Two hidden layers, double precision."""
    architecture = Architecture(INPUTS, (6, 5), likelihood.outputs, activation, members, skip)
    return BayesianNetwork(architecture, torch.Generator().manual_seed(seed)).double()


def assert_gradient_is_of_the_free_energy(
    network: BayesianNetwork, likelihood: Likelihood, prior: Prior, draws: int, *, weighted: bool = False
) -> None:
    """Return the loss of one minibatch, its parts and its gradient: of the step, and of the definition."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(7, INPUTS, generator=generator, dtype=torch.float64)
    targets = torch.randn(7, generator=generator, dtype=torch.float64)
    weights = torch.rand(7, generator=generator, dtype=torch.float64) + 0.1 if weighted else None
    options: dict[str, Any] = {"kl_weight": 0.2, "minibatches": 5, "temperature": 0.7}
    parameters = [*network.parameters(), *likelihood.parameters()]

    tape = free_energy(
        network,
        likelihood,
        prior,
        rows,
        targets,
        weights,
        total_rows=33,
        draws=draws,
        generator=torch.Generator().manual_seed(2),
        **options,
    )
    expected = torch.autograd.grad(tape.loss, parameters)
    step = GradientStep(network, likelihood, prior, total_rows=33, draws=draws)
    energy = step(rows, targets, weights, generator=torch.Generator().manual_seed(2), **options)

    torch.testing.assert_close(energy.loss, tape.loss)
    torch.testing.assert_close(energy.kl, tape.kl)
    torch.testing.assert_close(energy.negative_log_likelihood, tape.negative_log_likelihood)
    for parameter, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
