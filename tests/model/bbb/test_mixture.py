"""The mixture-density observation model."""

from __future__ import annotations

import torch

from murho.model.bbb.numbers import MixtureNoise


def test_log_density_of_a_mixture_is_that_of_torch() -> None:
    likelihood = MixtureNoise(3)
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(2, 5, likelihood.outputs, generator=generator)
    targets = torch.randn(5, generator=generator)
    means, noise, weights = likelihood.components(outputs)
    assert weights is not None
    expected = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(weights), torch.distributions.Normal(means, noise)
    ).log_prob(targets)
    torch.testing.assert_close(likelihood.log_density(outputs, targets), expected)


def test_a_component_that_counts_at_the_edge_for_nothing_counts_for_nothing_beyond() -> None:
    likelihood = MixtureNoise(2)
    edge = torch.tensor([[[1.0, 50.0, -2.0, -2.0, 20.0, -20.0]]])
    beyond = torch.tensor([[[1.5, 900.0, 3.0, 3.0, -20.0, 20.0]]])
    means, noise, weights = likelihood.components(likelihood.with_scatter_of(beyond, edge))
    _, noise_there, weights_there = likelihood.components(edge)
    assert weights is not None
    assert weights_there is not None
    torch.testing.assert_close(means, torch.tensor([[[1.5, 50.5]]]))
    torch.testing.assert_close(noise, noise_there)
    torch.testing.assert_close(weights, weights_there)
