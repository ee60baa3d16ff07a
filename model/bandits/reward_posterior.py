"""The posterior of the arms' reward functions: Bayes by Backprop, with networks of its own for each arm.

An arm's networks learn from the rewards of that arm alone. The A arms with E networks each are the ``A * E`` members of
one `model.networks.bayesian_network.BayesianNetwork`, so that a step trains all of them at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from murho.model.bandits.bounded_reward import BoundedReward
from murho.model.bandits.experience import Experience
from murho.model.engines.draws import mean_network
from murho.model.engines.forward import forward
from murho.model.fitting.gradient_clipping import GradientClipping
from murho.model.fitting.gradients import GradientStep
from murho.model.fitting.optimisers import Adam
from murho.model.networks.bayesian_network import Architecture, BayesianNetwork
from murho.model.networks.layers import inverse_softplus
from murho.model.networks.posterior_prior import PosteriorPrior

if TYPE_CHECKING:
    from murho.model.bandits.bandit_options import BanditOptions

__all__ = ["RewardPosterior"]

INITIAL_MEANS = 0.3
"""Initial means, drawn, as a fraction of the prior's standard deviation; the initial sigma is that of the prior."""
FINAL_LEARNING_RATE = 0.03
"""Learning rate at the end of an update, as a fraction of that at its start."""
REFRESHED = 4096
"""Earlier decisions whose surprise is computed anew in an update, which bounds the work of an update."""


class RewardPosterior:
    """What is believed of each arm's expected reward, given a context.

    Attributes:
        experience: All decisions so far.
        network: The stacked networks; member ``a E + e`` is network e of arm a.
        prior: Prior of their weights.
    """

    def __init__(self, inputs: int, arms: int, options: BanditOptions) -> None:
        """Begin with the prior.

        Args:
            inputs: D.
            arms: A.
            options: Options of the agent.
        """
        self.arms, self.options = arms, options
        generator = torch.Generator().manual_seed(options.seed)
        architecture = Architecture(
            inputs, options.hidden, 1, options.activation, members=arms * options.members, skip=bool(options.hidden)
        )
        self.network = BayesianNetwork(architecture, generator)
        scale = _prior_scales(self.network, options)
        self.prior = PosteriorPrior(torch.zeros_like(scale), scale)
        with torch.no_grad():
            self.network.mu.copy_(INITIAL_MEANS * scale * torch.randn(scale.shape, generator=generator))
            self.network.rho.copy_(inverse_softplus(scale))
        self.experience = Experience(inputs, arms)
        self._generator = generator
        self._likelihood = BoundedReward()
        self._optimiser = Adam(list(self.network.parameters()), options.learning_rate)
        self._clipping = GradientClipping(self.network, self._likelihood)
        self._updates = 0

    def draw(self, contexts: Tensor, generator: torch.Generator) -> Tensor:
        """Expected rewards under a draw of the weights: another draw, of a random member, for every context.

        Args:
            contexts: ``[B, D]``.
            generator: Source of the draws.

        Returns:
            ``[B, A]``, in the unit of the rewards.
        """
        members, batch = self.options.members, len(contexts)
        with torch.no_grad():
            logits = self.network(contexts, generator)[..., 0].view(self.arms, members, batch)
        chosen = torch.randint(members, (1, 1, batch), generator=generator).expand(self.arms, 1, batch)
        return self._reward(torch.sigmoid(logits.gather(1, chosen)[:, 0].T))

    def mean(self, contexts: Tensor) -> Tensor:
        """Expected rewards of the mu-only networks, averaged over an arm's members, ``[B, A]``."""
        return self._reward(self._mean_shares(contexts))

    def learn(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        """Add B decisions with their rewards, and train on all decisions so far from the present parameters.

        An arm's loss is its free energy per row at the temperature of the options, ``E_q[-log p] + temperature KL / N``
        with the arm's number of rows N.

        Args:
            contexts: ``[B, D]``.
            arms: Chosen arms, ``[B]``.
            rewards: Their rewards, ``[B]``.

        Raises:
            FitError: The loss became NaN or infinite.
        """
        options = self.options
        shares = (rewards - options.lowest_reward) / (options.highest_reward - options.lowest_reward)
        self._refresh_surprises(self.experience.add(contexts, arms, shares))
        of_members = self.experience.counts.repeat_interleave(options.members)
        # With N = B and one minibatch the loss is a mean over the B rows; the ratio makes B of the KL that of N rows.
        step = GradientStep(
            self.network,
            self._likelihood,
            self.prior,
            total_rows=options.batch_size,
            kl_ratios=options.batch_size / of_members.clamp_min(1).float(),
        )
        self._updates += 1
        batches = self.experience.minibatches(options.steps, options.members, options.batch_size, self._generator)
        for number, (rows, weights) in enumerate(zip(*batches, strict=True)):
            features, _, targets = self.experience.rows(rows)
            energy = step(
                features,
                targets,
                weights,
                kl_weight=1.0,
                minibatches=1,
                temperature=options.temperature,
                generator=self._generator,
            )
            self._clipping.clip(energy, features, targets, self._updates)
            cosine = 0.5 * (1.0 + math.cos(math.pi * number / options.steps))
            share = FINAL_LEARNING_RATE + (1.0 - FINAL_LEARNING_RATE) * cosine
            self._optimiser.learning_rate = options.learning_rate * share
            self._optimiser.step()

    def _refresh_surprises(self, new: Tensor) -> None:
        """Compute the surprises of new decisions, and of some earlier ones."""
        earlier = int(new[0]) if len(new) else len(self.experience)
        if earlier > REFRESHED:
            some = torch.randint(earlier, (REFRESHED,), generator=self._generator)
        else:
            some = torch.arange(earlier)
        numbers = torch.cat((some, new))
        contexts, arms, shares = self.experience.rows(numbers)
        expected = self._mean_shares(contexts).gather(1, arms[:, None])[:, 0]
        self.experience.remember(numbers, (shares - expected).abs())

    def _mean_shares(self, contexts: Tensor) -> Tensor:
        draws = mean_network(self.network.named_tensors(), self.network.architecture)
        logits = forward(draws, contexts)[..., 0].view(self.arms, self.options.members, len(contexts))
        return torch.sigmoid(logits).mean(dim=1).T

    def _reward(self, shares: Tensor) -> Tensor:
        options = self.options
        return options.lowest_reward + (options.highest_reward - options.lowest_reward) * shares


def _prior_scales(network: BayesianNetwork, options: BanditOptions) -> Tensor:
    """Prior standard deviation of each weight and bias, ``[M, P]``: an option's over the length of a layer's inputs."""
    architecture = network.architecture
    length = math.sqrt(architecture.inputs) if options.context_length is None else options.context_length
    # One more for the bias.
    by_inputs = 1.0 / math.hypot(length, 1.0)
    scales = torch.empty_like(network.mu)
    parts = network.parts(scales)
    last = len(architecture.layers) - 1
    for layer in range(last + 1):
        by_layer = by_inputs if layer == 0 else architecture.hidden[layer - 1] ** -0.5
        for part in parts[2 * layer : 2 * layer + 2]:
            part.fill_(options.hidden_sigma * by_layer)
    first_direct = architecture.hidden[-1] if architecture.skip else 0
    parts[2 * last][:, first_direct:] = options.linear_sigma * by_inputs
    parts[2 * last + 1].fill_(options.linear_sigma * by_inputs)
    return scales
