"""The optimiser step of a fit: Adam, the schedule of the learning rate, averaging of parameters over steps.

Adam (Kingma & Ba 2015) is PyTorch's update rule in its functional form. The first object of a PyTorch optimiser class
loads PyTorch's compiler, which a fit does not need, and which costs seconds of processor time and 100 MiB. The updates
are the same to the bit.

There is no weight decay: on rho it would pull sigma towards softplus(0) = 0.69, and the prior already shrinks mu.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim.adam import adam

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.bbb.fit import FitOptions


class Adam:
    """Adam and the parameters that it updates.

    Attributes:
        learning_rate: Learning rate of the next step.
        moments: Averages of the gradients and of their squares, and the step counts, a tensor for each parameter.
    """

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float) -> None:
        """Store the parameters; every step reads their ``grad``."""
        self.learning_rate = learning_rate
        self._parameters = list(parameters)
        self.moments = {
            "exp_avg": [torch.zeros_like(parameter) for parameter in parameters],
            "exp_avg_sq": [torch.zeros_like(parameter) for parameter in parameters],
            "step": [torch.zeros((), device=parameter.device) for parameter in parameters],
        }

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter; raises a ValueError if one has no gradient."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if len(gradients) < len(self._parameters):
            raise ValueError("a parameter has no gradient")
        adam(
            self._parameters,
            gradients,
            self.moments["exp_avg"],
            self.moments["exp_avg_sq"],
            [],
            self.moments["step"],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )


FINAL_LEARNING_RATE = 0.01
"""The last learning rate as a fraction of the first."""
FIRST_OF_PATH, FINAL_RATE_OF_PATH = 0.01, 0.2
"""On a temperature path: the first temperature as a fraction of the last, and the last learning rate as a fraction of
the first. The temperature changes until the end, and the parameters must be able to follow."""
BETA_NLL_SHARE = 0.9
"""Share of a fit over which ``beta`` of `model.bbb.likelihood.Likelihood.evened` falls from 1 to 0."""


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
        """``beta`` of `Likelihood.evened` in the next step; it falls from 1 to 0."""
        if self._options.warm_up_steps == 0:
            return 0.0
        return max(0.0, 1.0 - self._progress / (BETA_NLL_SHARE * self._total))

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step; it falls along a cosine."""
        cosine = 0.5 * (1.0 + math.cos(math.pi * min(1.0, self._progress / self._total)))
        final = FINAL_RATE_OF_PATH if self._options.temperature is None else FINAL_LEARNING_RATE
        return self._options.learning_rate * (final + (1.0 - final) * cosine)


AVERAGING = 0.98
"""Decay of the average per step."""


@dataclass
class ParameterAverage:
    """A running average of parameters over the steps of a fit, and the best average seen.

    Attributes:
        parameters: Parameters that the optimiser updates.
        average: Exponential average of the parameters, of the same shapes.
        best: The average at the last call of `keep`, of the same shapes.
        steps: Number of steps in the average.
    """

    parameters: list[Tensor]
    average: list[Tensor] = field(init=False)
    best: list[Tensor] = field(init=False)
    steps: int = 0

    def __post_init__(self) -> None:
        self.average = [parameter.detach().clone() for parameter in self.parameters]
        self.best = [parameter.detach().clone() for parameter in self.parameters]

    def step(self) -> None:
        """Add the parameters to the average, after an optimiser step."""
        self.steps += 1
        # A smaller decay in the first steps, so that the initial values soon lose their weight.
        decay = min(AVERAGING, self.steps / (self.steps + 10.0))
        torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], 1.0 - decay)

    def keep(self) -> None:
        """Keep the average as the best one."""
        torch._foreach_copy_(self.best, self.average)

    def load(self, values: list[Tensor]) -> list[Tensor]:
        """Set the parameters to given values; returns their old values."""
        before = [parameter.detach().clone() for parameter in self.parameters]
        with torch.no_grad():
            torch._foreach_copy_([p.data for p in self.parameters], values)
        return before
