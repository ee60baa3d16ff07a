"""The free energy: weights of the KL, and the sum over an epoch."""

from __future__ import annotations

import pytest
import torch

from murho.model.bbb.free_energy import GradientStep, kl_weights
from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.bbb.numbers import FixedNoise
from murho.model.bbb.priors import GaussianPrior
from tests.model.oracles import kl


@pytest.mark.parametrize("minibatches", [1, 2, 7, 1500])
@pytest.mark.parametrize("kind", ["uniform", "geometric"])
def test_kl_weights_sum_to_one(kind: str, minibatches: int) -> None:
    weights = kl_weights(kind, minibatches)
    assert len(weights) == minibatches
    assert sum(weights) == pytest.approx(1.0, abs=1e-12)


def test_geometric_weights_are_those_of_blundell() -> None:
    expected = [2.0 ** (5 - i) / (2.0**5 - 1.0) for i in range(1, 6)]
    assert kl_weights("geometric", 5) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["uniform", "geometric"])
def test_mean_loss_of_an_epoch_is_free_energy_per_row_also_for_uneven_minibatches(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    network = BayesianNetwork(Architecture(inputs=3, hidden=(4,), outputs=1), generator)
    with torch.no_grad():
        network.rho.fill_(-30.0)  # no noise: the expected likelihood is that of the mean network
    rows, targets = torch.randn(10, 3, generator=generator), torch.randn(10, generator=generator)
    prior, likelihood = GaussianPrior(1.0), FixedNoise(0.5)
    step = GradientStep(network, likelihood, prior, total_rows=10)
    losses = [
        step(part_rows, part_targets, kl_weight=weight, minibatches=3, generator=generator).loss
        for part_rows, part_targets, weight in zip(
            rows.tensor_split(3), targets.tensor_split(3), kl_weights(kind, 3), strict=True
        )
    ]
    mean = network(rows, generator)[0, :, 0].detach()
    log_likelihood = torch.distributions.Normal(mean, 0.5).log_prob(targets).sum()
    expected = (kl(prior, network.mu.detach(), network.sigma().detach(), network.groups)[0] - log_likelihood) / 10
    torch.testing.assert_close(torch.stack(losses).mean(), expected, rtol=1e-5, atol=1e-5)
