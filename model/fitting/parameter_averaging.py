"""Exponential average of mu and rho over the steps of a fit, which averages out the noise of single draws."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["ParameterAverage"]

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
