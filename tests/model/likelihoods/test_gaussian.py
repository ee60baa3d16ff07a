"""Observation models."""

from __future__ import annotations

import pytest
import torch

from murho.model.errors import OptionError
from murho.model.likelihoods.gaussian import (
    NOISE_FLOOR,
    GaussianNoise,
    HeteroscedasticNoise,
    HomoscedasticNoise,
)
from murho.model.likelihoods.registry import make_likelihood


@pytest.mark.parametrize(
    ("kind", "sigma"), [("fixed", 0.3), ("homoscedastic", None), ("heteroscedastic", None)]
)
def test_log_density_is_that_of_a_gaussian(kind: str, sigma: float | None) -> None:
    likelihood = make_likelihood(kind, members=2, sigma=sigma)
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(2, 5, likelihood.outputs, generator=generator)
    targets = torch.randn(5, generator=generator)
    assert isinstance(likelihood, GaussianNoise)
    noise = likelihood.noise(outputs).expand(2, 5)
    expected = torch.distributions.Normal(outputs[..., 0], noise).log_prob(targets)
    torch.testing.assert_close(likelihood.log_density(outputs, targets), expected)


def test_learned_noise_never_falls_below_the_floor() -> None:
    outputs = torch.full((1, 3, 2), -200.0)
    assert float(HeteroscedasticNoise().noise(outputs).min()) == pytest.approx(NOISE_FLOOR)
    mixture = make_likelihood("mixture", members=1, components=1)
    assert float(mixture.components(outputs.repeat(1, 1, 2)[..., :3])[1].min()) == pytest.approx(NOISE_FLOOR)


def test_levelled_rows_pull_their_means_as_if_all_had_the_same_noise() -> None:
    outputs = torch.zeros(1, 4, 2)
    outputs[0, :, 1] = torch.tensor([-3.0, 0.0, 1.0, 4.0])
    likelihood, targets = HeteroscedasticNoise(), torch.ones(4)
    exact = likelihood.gradient(outputs, targets, 1.0)[1]
    torch.testing.assert_close(exact[0, :, 0], likelihood.noise(outputs)[0].square().reciprocal())
    levelled = likelihood.gradient(outputs, targets, 1.0, levelling=1.0)[1]
    torch.testing.assert_close(levelled[0, :, 0], levelled[0, :1, 0].expand(4))
    torch.testing.assert_close(levelled[..., 1], exact[..., 1])


def test_homoscedastic_noise_starts_where_told_and_follows_the_member_of_each_draw() -> None:
    likelihood = HomoscedasticNoise(members=2, initial=0.4)
    assert likelihood.noise(torch.zeros(2, 1, 1)).flatten().tolist() == pytest.approx([0.4, 0.4])
    with torch.no_grad():
        likelihood.rho[1] = 3.0
    members = torch.tensor([0, 1, 0])
    noise = likelihood.noise(torch.zeros(3, 1, 1), members).flatten()
    assert noise[0] == noise[2] != noise[1]


def test_log_density_of_a_mixture_is_that_of_torch() -> None:
    likelihood = make_likelihood("mixture", members=2, components=3)
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(2, 5, likelihood.outputs, generator=generator)
    targets = torch.randn(5, generator=generator)
    means, noise, weights = likelihood.components(outputs)
    assert weights is not None
    expected = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(weights), torch.distributions.Normal(means, noise)
    ).log_prob(targets)
    torch.testing.assert_close(likelihood.log_density(outputs, targets), expected)


def test_bad_kinds_and_values_are_refused() -> None:
    with pytest.raises(OptionError, match="--noise-sigma"):
        make_likelihood("fixed", members=1)
    with pytest.raises(OptionError, match="positive"):
        make_likelihood("fixed", members=1, sigma=-1.0)
    with pytest.raises(OptionError, match="--noise-components"):
        make_likelihood("mixture", members=1)
    with pytest.raises(OptionError, match="1 to 20"):
        make_likelihood("mixture", members=1, components=21)
    with pytest.raises(OptionError, match="poisson"):
        make_likelihood("poisson", members=1)


@pytest.mark.parametrize("kind", ["fixed", "homoscedastic", "heteroscedastic", "mixture"])
def test_function_values_and_scatter_can_be_those_of_two_rows(kind: str) -> None:
    likelihood = make_likelihood(kind, members=1, sigma=0.4, components=3)
    generator = torch.Generator().manual_seed(3)
    here, there = (torch.randn(1, 4, likelihood.outputs, generator=generator) for _ in range(2))

    def moments(outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        means, noise, weights = likelihood.components(outputs)
        weights = torch.ones_like(means) if weights is None else weights
        mean = (weights * means).sum(dim=-1)
        return mean, (weights * ((means - mean.unsqueeze(-1)).square() + noise.square())).sum(dim=-1)

    mean, variance = moments(likelihood.with_scatter_of(here, there))
    means, _, _ = likelihood.components(here)
    _, _, weights = likelihood.components(there)
    torch.testing.assert_close(mean, ((1.0 if weights is None else weights) * means).sum(dim=-1))
    torch.testing.assert_close(variance, moments(there)[1])


def test_a_component_that_counts_at_the_edge_for_nothing_counts_for_nothing_beyond() -> None:
    likelihood = make_likelihood("mixture", members=1, components=2)
    edge = torch.tensor([[[1.0, 50.0, -2.0, -2.0, 20.0, -20.0]]])
    beyond = torch.tensor([[[1.5, 900.0, 3.0, 3.0, -20.0, 20.0]]])
    means, noise, weights = likelihood.components(likelihood.with_scatter_of(beyond, edge))
    _, noise_there, weights_there = likelihood.components(edge)
    assert weights is not None
    assert weights_there is not None
    torch.testing.assert_close(means, torch.tensor([[[1.5, 50.5]]]))
    torch.testing.assert_close(noise, noise_there)
    torch.testing.assert_close(weights, weights_there)
