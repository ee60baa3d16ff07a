"""A posterior by dropout: each weight vector is the means with units left out at random (Gal & Ghahramani 2016).

The weights from unit i are ``z_i m_i`` with ``z_i ~ Bernoulli(1 - p)``: a variational posterior over matrices, sampled
by its parameters and a noise that does not depend on them. Its divergence from the prior ``N(0, s^2)`` is
``(1 - p) |M|^2 / (2 s^2)`` plus what does not depend on M (their equation 7 and appendix); the rate p is chosen by
validation. Dropout comes before every layer, and it stays on at prediction: a mask is a draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from murho.model.bbb.optimisers import Adam
from murho.model.distributions.mixtures import Mixture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.dropout_parts.regression_rows import RegressionRows

__all__ = ["RATES", "DropoutPosterior", "DropoutRecipe", "choose_rate", "fit_dropout"]

RATES = (0.001, 0.005, 0.01, 0.05, 0.1)
"""Rates to choose from: those of Gal & Ghahramani, and a lower one."""


@dataclass(frozen=True, slots=True)
class DropoutRecipe:
    """How a network is fitted.

    Attributes:
        rate: p, the probability of leaving out a unit.
        hidden: Width of the hidden layer.
        prior_sigma: Standard deviation of the prior of all weights.
        epochs: Passes over the rows.
        batch_size: Rows in a step.
        learning_rate: First learning rate (Adam); it falls to zero along a cosine.
        seed: Seed of weights, minibatches and masks.
    """

    rate: float
    hidden: int = 50
    prior_sigma: float = 1.0
    epochs: int = 200
    batch_size: int = 64
    learning_rate: float = 0.01
    seed: int = 0


class DropoutPosterior:
    """A network of one hidden layer with a learned noise.

    Attributes:
        parameters: Weights and biases, layer by layer, and the logarithm of the noise.
    """

    def __init__(self, inputs: int, recipe: DropoutRecipe, generator: torch.Generator) -> None:
        """Start with He-normal weights and a noise of 1.

        Args:
            inputs: D.
            recipe: The recipe.
            generator: Source of the weights.
        """
        self._rate, hidden = recipe.rate, recipe.hidden
        first = torch.randn(inputs, hidden, generator=generator) * (2.0 / inputs) ** 0.5
        second = torch.randn(hidden, 1, generator=generator) * hidden**-0.5
        parts = [first, torch.zeros(hidden), second, torch.zeros(1), torch.zeros(1)]
        self.parameters: list[Tensor] = [part.requires_grad_() for part in parts]

    def means(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """Function values of rows ``[B, D]``, each under a mask of its own, ``[B]``."""
        first, first_bias, second, second_bias, _ = self.parameters
        hidden = torch.relu(torch.addmm(first_bias, self._masked(rows, generator), first))
        return torch.addmm(second_bias, self._masked(hidden, generator), second).squeeze(1)

    def _masked(self, values: Tensor, generator: torch.Generator) -> Tensor:
        kept = 1.0 - self._rate
        return values * torch.empty_like(values).bernoulli_(kept, generator=generator).div_(kept)

    def loss(self, rows: Tensor, targets: Tensor, generator: torch.Generator, prior_sigma: float, total: int) -> Tensor:
        """Free energy of a minibatch, nats per row; ``total`` is N."""
        log_noise = self.parameters[-1]
        error = (targets - self.means(rows, generator)) / log_noise.exp()
        negative = 0.5 * error.square().mean() + log_noise + 0.5 * math.log(2.0 * math.pi)
        squares = sum((weight.square().sum() for weight in self.parameters[0:4:2]), start=torch.zeros(()))
        # The weights M of Gal & Ghahramani are divided by 1 - p here, so that a mask keeps the mean.
        return (negative + squares / (2.0 * prior_sigma**2 * (1.0 - self._rate) * total)).squeeze()

    @torch.no_grad()
    def predictive(self, rows: Tensor, draws: int, seed: int) -> Mixture:
        """The predictive of rows ``[B, D]``, standardised: one Gaussian for each of S masks."""
        generator = torch.Generator().manual_seed(seed)
        means = torch.stack([self.means(rows, generator) for _ in range(draws)]).double()
        return Mixture(means, self.parameters[-1].detach().double().exp().view(1, 1))


def fit_dropout(recipe: DropoutRecipe, features: Tensor, targets: Tensor) -> DropoutPosterior:
    """Minimise the free energy over all epochs.

    Args:
        recipe: The recipe.
        features: ``[N, D]``, standardised.
        targets: ``[N]``, standardised.
    """
    generator = torch.Generator().manual_seed(recipe.seed)
    posterior = DropoutPosterior(features.shape[1], recipe, generator)
    optimiser = Adam(posterior.parameters, recipe.learning_rate)
    minibatches = math.ceil(len(features) / recipe.batch_size)
    total = recipe.epochs * minibatches
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(features), generator=generator)
        for number, rows in enumerate(order.split(recipe.batch_size)):
            for parameter in posterior.parameters:
                parameter.grad = None
            posterior.loss(features[rows], targets[rows], generator, recipe.prior_sigma, len(features)).backward()
            done = (epoch * minibatches + number) / total
            optimiser.learning_rate = recipe.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))
            optimiser.step()
    return posterior


def choose_rate(
    rows: RegressionRows, rates: Sequence[float], recipe: DropoutRecipe, draws: int
) -> tuple[float, dict[float, float]]:
    """The rate of the highest validation log-likelihood, and that of every rate, nats per row, standardised.

    Args:
        rows: Rows of the split; those of ``chosen_by`` judge, the other training rows are learned.
        rates: Rates to try.
        recipe: The recipe, whatever its rate.
        draws: S.
    """
    features, targets = rows.training
    learned = torch.ones(len(targets), dtype=torch.bool)
    learned[rows.chosen_by] = False
    found = {}
    for rate in rates:
        tried = replace(recipe, rate=rate)
        posterior = fit_dropout(tried, features[learned], targets[learned])
        predictive = posterior.predictive(features[rows.chosen_by], draws, recipe.seed)
        found[rate] = float(predictive.log_density(targets[rows.chosen_by].double()).mean())
    return max(found, key=lambda rate: found[rate]), found
