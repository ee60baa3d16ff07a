"""Adam (Kingma & Ba 2015): PyTorch's update rule in its functional form.

The first object of a PyTorch optimiser class loads PyTorch's compiler. A fit does not need the compiler, which costs
seconds of processor time (a search on a small table has 48) and 100 MiB. The updates are the same to the bit.

There is no weight decay: on rho it would pull sigma towards softplus(0) = 0.69, and the prior already shrinks mu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim.adam import adam

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Adam"]


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
