"""Schedule of learning rate, temperature and beta over the steps of a fit, within a budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from murho.model.fitting.fit_types import FitOptions

__all__ = ["FINAL_LEARNING_RATE", "Schedule"]

FINAL_LEARNING_RATE = 0.01
"""The last learning rate as a fraction of the first."""
FIRST_OF_PATH, FINAL_RATE_OF_PATH = 0.01, 0.2
"""On a temperature path: the first temperature as a fraction of the last, and the last learning rate as a fraction of
the first. The temperature changes until the end, and the parameters must be able to follow."""
BETA_NLL_SHARE = 0.9
"""Share of a fit over which ``beta`` of `model.likelihoods.likelihood.Likelihood.gradient` falls from 1 to 0."""


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

    def step(self) -> None:
        """Advance by one optimiser step."""
        self._steps += 1
        self._progress += self._pace

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
        return self._options.temperature_path or self._progress >= self._options.warm_up_steps

    @property
    def temperature(self) -> float:
        """Factor of the KL in the next step."""
        if self._options.temperature_path:
            left = 1.0 - min(1.0, (self._progress + 1.0) / self._total)
            return self._options.temperature * math.exp(left * math.log(FIRST_OF_PATH))
        warm_up = max(1, self._options.warm_up_steps)
        return self._options.temperature * min(1.0, (self._progress + 1.0) / warm_up)

    @property
    def beta(self) -> float:
        """``beta`` of `Likelihood.gradient` in the next step; it falls from 1 to 0."""
        if not self._options.beta_nll:
            return 0.0
        return max(0.0, 1.0 - self._progress / (BETA_NLL_SHARE * self._total))

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step; it falls along a cosine."""
        cosine = 0.5 * (1.0 + math.cos(math.pi * min(1.0, self._progress / self._total)))
        final = FINAL_RATE_OF_PATH if self._options.temperature_path else FINAL_LEARNING_RATE
        return self._options.learning_rate * (final + (1.0 - final) * cosine)
