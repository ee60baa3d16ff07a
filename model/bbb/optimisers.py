"""The optimiser of a fit: Adam, and an average of the parameters over steps.

Adam (Kingma & Ba 2015) is PyTorch's update rule in its functional form. The first object of a PyTorch optimiser class
loads PyTorch's compiler, which a fit does not need, and which costs seconds of processor time and 100 MiB. The updates
are the same to the bit.

There is no weight decay: on rho it would pull sigma towards softplus(0) = 0.69, and the prior already shrinks mu.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam

AVERAGING = 0.98
"""Decay of the average per step."""


class FitState:
    """The parameters of a fit, and what each step makes of them: a tensor of the same shape for each parameter.

    Attributes:
        parameters: The parameters; every step reads their ``grad``.
        first: Averages of the gradients.
        second: Averages of their squares.
        average: Exponential average of the parameters.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        """Begin before the first step."""
        self.parameters = list(parameters)
        self.first, self.second = ([torch.zeros_like(each) for each in parameters] for _ in range(2))
        self.average = [each.detach().clone() for each in parameters]
        self._counts = [torch.zeros((), device=each.device) for each in parameters]
        self._steps = 0

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update every parameter, then the averages; raises a ValueError if a parameter has no gradient."""
        gradients = [each.grad for each in self.parameters if each.grad is not None]
        if len(gradients) < len(self.parameters):
            raise ValueError("a parameter has no gradient")
        adam(
            self.parameters,
            gradients,
            self.first,
            self.second,
            [],
            self._counts,
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=learning_rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )
        self._steps += 1
        # A smaller decay in the first steps, so that the initial values soon lose their weight.
        decay = min(AVERAGING, self._steps / (self._steps + 10.0))
        torch._foreach_lerp_(self.average, self.parameters, 1.0 - decay)

    @torch.no_grad()
    def load(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Set the parameters to given values; returns their old values."""
        before = [each.detach().clone() for each in self.parameters]
        torch._foreach_copy_(self.parameters, list(values))
        return before
