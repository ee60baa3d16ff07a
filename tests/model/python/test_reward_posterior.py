"""The posterior of rewards: its prior, its draws, and exactness of what it minimises."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from murho.model.python.bandits import BanditOptions, RewardPosterior


def options(**changes: object) -> BanditOptions:
    """Rewards from 0 to 10."""
    return BanditOptions(**{"lowest_reward": 0.0, "highest_reward": 10.0, **changes})  # type: ignore[arg-type]


def test_before_any_reward_draws_are_wide_and_the_same_for_every_arm() -> None:
    posterior = RewardPosterior(4, 3, options(hidden_sigma=1e-3, linear_sigma=2.0, seed=1))
    contexts = torch.ones(4000, 4)
    drawn = posterior.draw(contexts, torch.Generator().manual_seed(0))
    assert drawn.shape == (4000, 3)
    assert 0.0 < float(drawn.min()) < 0.5
    assert 9.5 < float(drawn.max()) < 10.0
    # 4 inputs of 1 and a bias, each weight with 2 / sqrt(5): the logit has the standard deviation 2 about its mean.
    logits = torch.logit(drawn / 10.0)
    assert logits.std(dim=0).tolist() == pytest.approx([2.0] * 3, rel=0.06)


def test_a_context_length_scales_the_prior_of_the_inputs_weights() -> None:
    short = RewardPosterior(9, 2, options())
    long = RewardPosterior(9, 2, options(context_length=math.sqrt(99.0)))
    weights = [part.network.parts(part.prior.scale)[0] for part in (short, long)]
    assert float(weights[0][0, 0, 0]) == pytest.approx(1.0 / math.sqrt(10.0))
    assert float(weights[1][0, 0, 0]) == pytest.approx(0.1)


def test_a_linear_posterior_is_the_exact_one_of_a_bernoulli_trial() -> None:
    # One bias alone matters (the context is zero): the best Gaussian about the exact posterior of its logit, by a grid.
    posterior = RewardPosterior(
        1, 2, options(hidden=(), linear_sigma=2.0, temperature=1.0, steps=1500, batch_size=128, seed=0)
    )
    rewards = np.array([10.0] * 9 + [0.0] * 3)
    arms = np.zeros(12, dtype=np.int64)
    posterior.learn(torch.zeros(12, 1), torch.from_numpy(arms), torch.from_numpy(rewards).float())
    mean, sigma = _best_gaussian(9, 3, prior=2.0 / math.sqrt(2.0))
    bias_mu = posterior.network.named_tensors()["layers.0.bias.mu"][0, 0, 0].detach()
    bias_sigma = posterior.network.parts(posterior.network.sigma().detach())[1][0, 0, 0]
    assert float(bias_mu) == pytest.approx(mean, abs=0.06)
    assert float(bias_sigma) == pytest.approx(sigma, rel=0.06)
    # Nothing was learned of the weight, which met zeros alone, nor of the other arm.
    weight_sigma = posterior.network.parts(posterior.network.sigma().detach())[0][:, 0, 0]
    assert weight_sigma.tolist() == pytest.approx([math.sqrt(2.0)] * 2, rel=0.03)


def _best_gaussian(successes: int, failures: int, prior: float) -> tuple[float, float]:
    """Mean and sigma that minimise KL minus expected log likelihood, by search over a grid with quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    weights = weights / weights.sum()

    def free_energy(mean: float, sigma: float) -> float:
        logits = mean + sigma * nodes
        likelihood = successes * -np.logaddexp(0.0, -logits) + failures * -np.logaddexp(0.0, logits)
        kl = math.log(prior / sigma) + (sigma**2 + mean**2) / (2.0 * prior**2) - 0.5
        return kl - float(weights @ likelihood)

    places = [(mean, sigma) for mean in np.linspace(0.5, 1.5, 101) for sigma in np.linspace(0.3, 1.0, 71)]
    return min(places, key=lambda place: free_energy(*place))


def test_the_same_seed_learns_the_same_and_another_another() -> None:
    def learned(seed: int) -> torch.Tensor:
        posterior = RewardPosterior(2, 2, options(steps=5, seed=seed))
        generator = torch.Generator().manual_seed(9)
        contexts = torch.randn(20, 2, generator=generator)
        posterior.learn(contexts, torch.arange(20) % 2, 10.0 * torch.rand(20, generator=generator))
        return posterior.mean(contexts)

    assert torch.equal(learned(3), learned(3))
    assert not torch.equal(learned(3), learned(4))
