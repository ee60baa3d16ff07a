"""Observation models by name, and what holds for all of them."""

from __future__ import annotations

import pytest
import torch

from murho.model.bbb.likelihood import NOISE_FLOOR
from murho.model.bbb.numbers import GaussianMixtureLikelihood, HeteroscedasticNoise, MixtureNoise
from murho.model.bbb.registry import LIKELIHOODS, NOISE_KINDS, make_likelihood
from murho.model.errors import OptionError

GAUSSIANS = [kind for kind in NOISE_KINDS if LIKELIHOODS[kind].mixture_outputs]


def test_learned_noise_never_falls_below_the_floor() -> None:
    outputs = torch.full((1, 3, 2), -200.0)
    assert float(HeteroscedasticNoise().noise(outputs).min()) == pytest.approx(NOISE_FLOOR)
    mixture = MixtureNoise(1)
    assert float(mixture.components(outputs.repeat(1, 1, 2)[..., :3])[1].min()) == pytest.approx(NOISE_FLOOR)


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


@pytest.mark.parametrize("kind", GAUSSIANS)
def test_function_values_and_scatter_can_be_those_of_two_rows(kind: str) -> None:
    likelihood = make_likelihood(kind, members=1, sigma=0.4, components=3)
    assert isinstance(likelihood, GaussianMixtureLikelihood)
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
