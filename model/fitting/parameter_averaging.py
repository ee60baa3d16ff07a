"""Exponential average of mu and rho along a fit, in which the noise of single draws cancels out."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["ParameterAverage"]

AVERAGING = 0.98
"""Decay of the average, a step."""


@dataclass
class ParameterAverage:
    """A running average of parameters over the steps of a fit, and the best average seen.

    Attributes:
        parameters: What the optimiser moves.
        average: Their exponential average, alike.
        best: The average when it was last kept, alike.
        steps: Steps averaged over.
    """

    parameters: list[Tensor]
    average: list[Tensor] = field(init=False)
    best: list[Tensor] = field(init=False)
    steps: int = 0

    def __post_init__(self) -> None:
        self.average = [parameter.detach().clone() for parameter in self.parameters]
        self.best = [parameter.detach().clone() for parameter in self.parameters]

    def step(self) -> None:
        """Takes the parameters in after an optimiser step."""
        self.steps += 1
        # Early on, average over what there is rather than over the start.
        decay = min(AVERAGING, self.steps / (self.steps + 10.0))
        torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], 1.0 - decay)

    def keep(self) -> None:
        """Makes the average the best one."""
        torch._foreach_copy_(self.best, self.average)

    def load(self, values: list[Tensor]) -> list[Tensor]:
        """Puts values into the parameters; returns what was there."""
        before = [parameter.detach().clone() for parameter in self.parameters]
        with torch.no_grad():
            torch._foreach_copy_([p.data for p in self.parameters], values)
        return before
