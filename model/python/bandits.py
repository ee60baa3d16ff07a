"""A contextual bandit: Thompson sampling from a Bayesian network that learns from rewards.

The agent chooses the arm of the highest expected reward under a draw of the weights. So an arm is chosen with the
probability that it is the best one (Thompson 1933; Blundell et al. 2015, section 4 with Bayes by Backprop). Rewards are
taken in batches, whenever the caller has some.

The posterior of the arms' reward functions is Bayes by Backprop, with a network of its own for each arm, which learns
from the rewards of that arm alone. They are the A members of one `model.bbb.network.BayesianNetwork`, so that a step
trains all of them at once.

A reward between two limits is learned as a share y in [0, 1] of the distance between them. It has the likelihood of a
Bernoulli trial, ``y log p + (1 - y) log(1 - p)``, with the expected share p as its only parameter. For 0 and 1 it is
exact. For shares in between it is a quasi-likelihood: its mean is right for any distribution of the share (Papke &
Wooldridge 1996, equation 5), and its variance p (1 - p) is the largest that a share of mean p can have. Agrawal & Goyal
(2012, algorithm 2) justify Thompson sampling with it, by tossing a coin of probability y. So no noise has to be
learned, and a reward that is always the same is soon certain.

In minibatches surprising rewards come more often. Once an agent has learned, nearly all rewards are as expected and say
nothing new. So half of each minibatch is drawn in proportion to the surprise, the distance between a reward and what
was expected of it. Weights undo this in the mean, ``1 / (N p)`` for a row of probability p: the gradient has the same
expectation as with uniform minibatches, and a smaller variance (importance sampling; Zhao & Zhang 2015, "Stochastic
optimization with importance sampling for regularized loss minimization", section 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from murho.model.arrays import Floats, Ints
from murho.model.bbb.free_energy import GradientStep
from murho.model.bbb.likelihood import Bernoulli
from murho.model.bbb.network import Architecture, BayesianNetwork, inverse_softplus
from murho.model.bbb.optimisers import FitState
from murho.model.bbb.priors import PosteriorPrior
from murho.model.errors import OptionError
from murho.model.predictive.decisions import choose
from murho.model.predictive.draws import mean_network
from murho.model.predictive.forward import forward
from murho.model.seeds import seed_for


class BoundedReward(Bernoulli):
    """``E[share] = sigmoid(output)``, for targets in [0, 1]."""

    kind = "bounded-reward"

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the quasi log likelihood, ``[M, B]``; see `model.bbb.likelihood.Likelihood.log_density`."""
        logit = outputs[..., 0]
        return targets * logit - functional.softplus(logit)


@dataclass(frozen=True, slots=True)
class BanditOptions:
    """Options of `model.python.bandits.ThompsonSampling`.

    The defaults were chosen on the mushroom bandit.

    Attributes:
        lowest_reward: No reward is below it.
        highest_reward: No reward is above it.
        hidden: Width of each hidden layer of an arm's network. The inputs also reach the output directly, so that
            linear effects are learned from few rewards.
        context_length: Typical length (square root of the sum of squares) of a context; by default the square root of
            the number of inputs, as for standardised inputs. One-hot columns of F features have the square root of F.
            The prior of the first weights is divided by it.
        linear_sigma: Prior standard deviation of the linear part of a reward's logit.
        hidden_sigma: Prior standard deviation of a hidden unit before its activation, and of the hidden units' part of
            the logit, for units of size 1.
        temperature: Factor of the KL. The factorised posterior counts the doubt about features that occur together
            once for each of them; a factor well below 1 makes up for it. The prior of what was never seen keeps its
            width.
        learning_rate: Learning rate at the start of an update; it falls along a cosine.
        batch_size: Rows of each arm in a step, B.
        steps: Optimiser steps of an update.
        seed: Seed of the initial means, the minibatches and the draws.
    """

    lowest_reward: float
    highest_reward: float
    hidden: tuple[int, ...] = (20,)
    context_length: float | None = None
    linear_sigma: float = 4.0
    hidden_sigma: float = 1.0
    temperature: float = 0.03
    learning_rate: float = 0.02
    batch_size: int = 64
    steps: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        if not -math.inf < self.lowest_reward < self.highest_reward < math.inf:
            raise OptionError(
                "lowest_reward and highest_reward must be finite, and the first below the second, not "
                f"{self.lowest_reward!r} and {self.highest_reward!r}"
            )
        for name in POSITIVE:
            value = getattr(self, name)
            if value is not None and not 0.0 < value < math.inf:
                raise OptionError(f"{name} must be a positive number, not {value!r}")
        if not 0 <= self.seed < 2**63:
            raise OptionError(f"seed must lie between 0 and 2^63 - 1, not {self.seed}")


POSITIVE = ("context_length", "linear_sigma", "hidden_sigma", "temperature", "learning_rate", "batch_size", "steps")

UNIFORM_SHARE = 0.5
"""Share of the minibatches that is drawn uniformly, so that no weight is above 2."""


class Experience:
    """Contexts, chosen arms, rewards and surprises of N decisions."""

    def __init__(self, inputs: int, arms: int) -> None:
        """Begin without a decision.

        Args:
            inputs: D.
            arms: A.
        """
        self._all_arms = arms
        self._contexts, self._arms = torch.empty(0, inputs), torch.empty(0, dtype=torch.long)
        self._shares, self._surprises = torch.empty(0), torch.empty(0)

    def __len__(self) -> int:
        return len(self._arms)

    @property
    def counts(self) -> Tensor:
        """Decisions for each arm, ``[A]``."""
        return torch.bincount(self._arms, minlength=self._all_arms)

    def add(self, contexts: Tensor, arms: Tensor, shares: Tensor) -> Tensor:
        """Add B decisions; they are as surprising as can be until `remember` says better.

        Args:
            contexts: ``[B, D]``.
            arms: Chosen arms, ``[B]``.
            shares: Rewards as shares of their range, ``[B]``.

        Returns:
            Their numbers, ``[B]``.
        """
        first = len(self)
        self._contexts = torch.cat((self._contexts, contexts))
        self._arms = torch.cat((self._arms, arms))
        self._shares = torch.cat((self._shares, shares))
        self._surprises = torch.cat((self._surprises, torch.ones(len(arms))))
        return torch.arange(first, len(self))

    def rows(self, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Contexts, arms and shares of decisions by number."""
        return self._contexts[numbers], self._arms[numbers], self._shares[numbers]

    def remember(self, numbers: Tensor, surprises: Tensor) -> None:
        """Set the surprises, not negative, of decisions by number."""
        self._surprises[numbers] = surprises

    def minibatches(self, steps: int, batch_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Rows of each step, drawn with replacement.

        Args:
            steps: T.
            batch_size: B.
            generator: Source of the draws.

        Returns:
            Numbers of the rows and their weights, ``[T, A, B]`` each. The weights of an arm without decisions are
            zero.
        """
        numbers = torch.zeros(steps, self._all_arms, batch_size, dtype=torch.long)
        weights = torch.zeros(numbers.shape)
        for arm in range(self._all_arms):
            rows = (self._arms == arm).nonzero()[:, 0]
            if len(rows):
                probabilities = self.probabilities(rows)
                places = torch.rand(steps, batch_size, generator=generator, dtype=torch.float64)
                chosen = torch.searchsorted(probabilities.cumsum(0), places).clamp_max_(len(rows) - 1)
                numbers[:, arm] = rows[chosen]
                weights[:, arm] = (1.0 / (len(rows) * probabilities[chosen])).float()
        return numbers, weights

    def probabilities(self, rows: Tensor) -> Tensor:
        """Probability of each of an arm's rows in a minibatch, ``[rows]``, double precision; they sum to 1."""
        surprises = self._surprises[rows].double()
        total = float(surprises.sum())
        uniform = torch.full_like(surprises, 1.0 / len(rows))
        if total <= 0.0:
            return uniform
        return UNIFORM_SHARE * uniform + (1.0 - UNIFORM_SHARE) / total * surprises


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
        network: The stacked networks, a member for each arm.
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
        architecture = Architecture(inputs, options.hidden, 1, "relu", members=arms, skip=bool(options.hidden))
        self.network = BayesianNetwork(architecture, generator)
        scale = _prior_scales(self.network, options)
        self.prior = PosteriorPrior(torch.zeros_like(scale), scale)
        with torch.no_grad():
            self.network.mu.copy_(INITIAL_MEANS * scale * torch.randn(scale.shape, generator=generator))
            self.network.rho.copy_(inverse_softplus(scale))
        self.experience = Experience(inputs, arms)
        self._generator = generator
        self._likelihood = BoundedReward()
        self._optimiser = FitState([*self.network.parameters()])
        self._updates = 0

    def draw(self, contexts: Tensor, generator: torch.Generator) -> Tensor:
        """Return expected rewards under a draw of the weights: another draw for every context.

        Args:
            contexts: ``[B, D]``.
            generator: Source of the draws.

        Returns:
            ``[B, A]``, in the unit of the rewards.
        """
        with torch.no_grad():
            shares: Tensor = torch.sigmoid(self.network(contexts, generator)[..., 0].T)
        return self._reward(shares)

    def mean(self, contexts: Tensor) -> Tensor:
        """Return expected rewards of the mu-only networks, ``[B, A]``."""
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
        # With N = B and one minibatch the loss is a mean over the B rows; the ratio makes B of the KL that of N rows.
        step = GradientStep(
            self.network,
            self._likelihood,
            self.prior,
            total_rows=options.batch_size,
            kl_ratios=options.batch_size / self.experience.counts.clamp_min(1).float(),
        )
        self._updates += 1
        batches = self.experience.minibatches(options.steps, options.batch_size, self._generator)
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
            step.clip(energy, features, targets, self._updates)
            cosine = 0.5 * (1.0 + math.cos(math.pi * number / options.steps))
            share = FINAL_LEARNING_RATE + (1.0 - FINAL_LEARNING_RATE) * cosine
            self._optimiser.step(options.learning_rate * share)

    def _refresh_surprises(self, new: Tensor) -> None:
        """Compute the surprises of new decisions, and of some earlier ones."""
        earlier = len(self.experience) - len(new)
        some = torch.arange(earlier)
        if earlier > REFRESHED:
            some = torch.randint(earlier, (REFRESHED,), generator=self._generator)
        numbers = torch.cat((some, new))
        contexts, arms, shares = self.experience.rows(numbers)
        expected = self._mean_shares(contexts).gather(1, arms[:, None])[:, 0]
        self.experience.remember(numbers, (shares - expected).abs())

    def _mean_shares(self, contexts: Tensor) -> Tensor:
        draws = mean_network(self.network.named_tensors(), self.network.architecture)
        return torch.sigmoid(forward(draws, contexts)[..., 0].view(self.arms, len(contexts))).T

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


UPDATES_PER_E_FOLD = 20
MOST_BETWEEN_UPDATES = 100
FEWEST_BETWEEN_UPDATES = 4


def decisions_until_update(decisions: int) -> int:
    """Return the number of decisions until the next update: a twentieth of those so far, from 4 to 100.

    The first rewards teach most, so they are learned from at once; later, updates are rare enough to be cheap.
    """
    return min(MOST_BETWEEN_UPDATES, max(FEWEST_BETWEEN_UPDATES, decisions // UPDATES_PER_E_FOLD))


class ThompsonSampling:
    """An agent with A arms, whose decisions depend on a context of D numbers.

    Attributes:
        posterior: What it believes of the rewards.
    """

    def __init__(self, inputs: int, arms: int, options: BanditOptions) -> None:
        """Begin without experience.

        Args:
            inputs: D.
            arms: A, at least 2.
            options: Options of the agent.

        Raises:
            OptionError: There are less than two arms, or no input.
        """
        if arms < 2:
            raise OptionError(f"an agent chooses between two arms at least, not {arms}")
        self._inputs, self._options = inputs, options
        self.posterior = RewardPosterior(inputs, arms, options)
        # Draws of decisions are apart from those of the updates.
        self._generator = torch.Generator().manual_seed(seed_for(options.seed, "decisions"))

    def choose(self, contexts: NDArray[np.floating], policy: str = "thompson") -> Ints:
        """Choose an arm for each context, each by a draw of its own; see `model.predictive.decisions.choose`.

        Args:
            contexts: ``[B, D]``.
            policy: ``thompson`` or ``greedy``.

        Returns:
            Numbers of the arms, ``[B]``.

        Raises:
            OptionError: The contexts have another shape, or are not finite.
        """
        rows = self._contexts(contexts)
        found = self.posterior.mean(rows) if policy == "greedy" else self.posterior.draw(rows, self._generator)
        values = found.double().numpy()
        return choose(policy, values[:, :, None], values, np.zeros(len(rows), np.int64))[0]  # each has but one draw

    def learn(self, contexts: NDArray[np.floating], arms: NDArray[np.integer], rewards: NDArray[np.floating]) -> None:
        """Learn from the rewards of decisions, this agent's or any other's.

        Args:
            contexts: ``[B, D]``.
            arms: Chosen arms, ``[B]``.
            rewards: Their rewards, ``[B]``, within the range of the options.

        Raises:
            OptionError: The shapes do not match, an arm does not exist, or a reward is outside of the range.
            FitError: The loss became NaN or infinite.
        """
        rows = self._contexts(contexts)
        arms, rewards = np.asarray(arms), np.asarray(rewards, dtype=np.float64)
        if not arms.shape == rewards.shape == (len(rows),):
            raise OptionError(
                f"{len(rows)} contexts need as many arms and rewards, not shapes {arms.shape} and {rewards.shape}"
            )
        options, known = self._options, range(self.posterior.arms)
        for row, (arm, reward) in enumerate(zip(arms.tolist(), rewards.tolist(), strict=True)):
            if arm not in known:
                raise OptionError(f"arms are whole numbers from 0 to {known[-1]}, not {arm!r}")
            if not options.lowest_reward <= reward <= options.highest_reward:
                raise OptionError(
                    f"reward {reward:g} of row {row} is outside of the range from {options.lowest_reward:g} to "
                    f"{options.highest_reward:g}; give the agent the limits of all possible rewards"
                )
        if len(rows):
            self.posterior.learn(
                rows, torch.from_numpy(arms.astype(np.int64)), torch.from_numpy(rewards.astype(np.float32))
            )

    def expected_rewards(self, contexts: NDArray[np.floating]) -> Floats:
        """Return expected reward of every arm by the mu-only networks, ``[B, A]``.

        Args:
            contexts: ``[B, D]``.

        Raises:
            OptionError: The contexts have another shape, or are not finite.
        """
        return self.posterior.mean(self._contexts(contexts)).numpy()

    def _contexts(self, contexts: NDArray[np.floating]) -> torch.Tensor:
        rows = torch.from_numpy(np.ascontiguousarray(contexts, dtype=np.float32))
        if rows.dim() != 2 or rows.shape[1] != self._inputs:
            raise OptionError(f"contexts have the shape [rows, {self._inputs}], not {list(rows.shape)}")
        if not bool(rows.isfinite().all()):
            raise OptionError("contexts must be finite numbers")
        return rows
