"""Options of a fit, and its schedule: the learning rate and the factor of the KL at each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How a network is fitted; `model.training.options` has validated every value.

    Attributes:
        kl_weights: ``uniform`` or ``geometric``.
        draws_per_step: Draws per row in each step.
        learning_rate: First learning rate.
        batch_size: Most rows in a minibatch.
        epochs: Most epochs to run.
        patience: Validations without improvement before the fit stops. None: validation decides nothing, all epochs are
            run and the last average is kept.
        warm_up_steps: Steps over which the KL's factor rises to ``temperature``. Over a fit with some, noisy rows have
            at first the same effect on their means as other rows (beta of `Likelihood.reweight_mean_gradient`). 0: the
            fit goes on from parameters that have been learned.
        temperature: The KL's factor at the end; 1 is the exact free energy. None: the factor rises over the whole fit,
            by the same ratio in each step. Parameters at any factor may then be the best, and the fit runs to its end.
        seed: Seed of minibatches and draws.
        budget: Most work, in reference seconds (`model.bbb.fit`), or None. If the steps are too many, the schedule
            speeds up, so that the fit still ends with a small learning rate and the full weight of the KL.
        budget_by_clock: Whether ``budget`` is in seconds of the clock instead; the fit then depends on the machine.
    """

    kl_weights: str = "uniform"
    draws_per_step: int = 1
    learning_rate: float = 1e-2
    batch_size: int = 64
    epochs: int = 1000
    patience: int | None = 30
    warm_up_steps: int = 300
    temperature: float | None = 1.0
    seed: int = 0
    budget: float | None = None
    budget_by_clock: bool = False


class StepOptions(NamedTuple):
    """What differs from step to step.

    Attributes:
        kl_weight: Share of the KL in the minibatch; the shares of an epoch sum to 1.
        temperature: Factor of the KL.
        beta: Exponent of `model.bbb.likelihood.Likelihood.reweight_mean_gradient`.
        learning_rate: Learning rate.
    """

    kl_weight: float
    temperature: float
    beta: float
    learning_rate: float


FINAL_LEARNING_RATE = 0.01
"""The last learning rate as a fraction of the first."""
FIRST_OF_PATH, FINAL_RATE_OF_PATH = 0.01, 0.2
"""On a temperature path: the first temperature as a fraction of the last, and the last learning rate as a fraction of
the first. The temperature changes until the end, and the parameters must be able to follow."""
BETA_NLL_SHARE = 0.9
"""Share of a fit over which ``beta`` of `model.bbb.likelihood.Likelihood.reweight_mean_gradient` falls from 1 to 0."""


class Schedule:
    """The position of a fit between its first and its last step, and the values of the schedule there."""

    def __init__(self, options: FitOptions, total_steps: int) -> None:
        """Start before the first step.

        Args:
            options: Options of the fit, with warm-up, temperature, learning rate and budget.
            total_steps: Optimiser steps in the most epochs allowed.
        """
        self._options, self._total = options, total_steps
        self._steps, self._progress, self._pace = 0, 0.0, 1.0

    def step(self, kl_weight: float) -> StepOptions:
        """Advance by one optimiser step; returns its options, with a share of the KL."""
        options = StepOptions(kl_weight, self.temperature, self.beta, self.learning_rate)
        self._steps += 1
        self._progress += self._pace
        return options

    def keep_within_budget(self, spent: float) -> None:
        """Speed up the schedule if the remaining steps would take more than what is left of the budget."""
        budget = self._options.budget
        if budget is None or spent < 0.05 * budget:
            return
        affordable = (0.95 * budget - spent) * self._steps / spent
        self._pace = max(1.0, (self._total - self._progress) / max(affordable, 1.0))

    @property
    def done(self) -> bool:
        """Whether the schedule has ended."""
        return self._progress >= self._total

    @property
    def share_done(self) -> float:
        """Share of the schedule that is done, from 0 to 1."""
        return min(1.0, self._progress / self._total)

    @property
    def warm(self) -> bool:
        """Whether parameters may be kept: always on a temperature path, else once the warm-up is over."""
        return self._options.temperature is None or self._progress >= self._options.warm_up_steps

    @property
    def temperature(self) -> float:
        """Factor of the KL in the next step."""
        if self._options.temperature is None:
            left = 1.0 - min(1.0, (self._progress + 1.0) / self._total)
            return math.exp(left * math.log(FIRST_OF_PATH))
        warm_up = max(1, self._options.warm_up_steps)
        return self._options.temperature * min(1.0, (self._progress + 1.0) / warm_up)

    @property
    def beta(self) -> float:
        """``beta`` of `Likelihood.reweight_mean_gradient` in the next step; it falls from 1 to 0."""
        if self._options.warm_up_steps == 0:
            return 0.0
        return max(0.0, 1.0 - self._progress / (BETA_NLL_SHARE * self._total))

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step; it falls along a cosine."""
        cosine = 0.5 * (1.0 + math.cos(math.pi * min(1.0, self._progress / self._total)))
        final = FINAL_RATE_OF_PATH if self._options.temperature is None else FINAL_LEARNING_RATE
        return self._options.learning_rate * (final + (1.0 - final) * cosine)
