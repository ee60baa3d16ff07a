"""Optimisers (Adam, RMSprop, SGD): PyTorch's update rules in their functional form.

The first object of a PyTorch optimiser class loads PyTorch's compiler. A fit does not need the compiler, which costs
seconds of processor time (a search on a small table has 48) and 100 MiB. The updates are the same to the bit.

No optimiser has weight decay: on rho it would pull sigma towards softplus(0) = 0.69, and the prior already shrinks mu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.rmsprop import rmsprop
from torch.optim.sgd import sgd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["OPTIMISERS", "Optimiser"]

DECAY = 0.99
"""Decay of the mean squared gradients of RMSprop."""
EPSILON = 1e-8
MOMENTUM = 0.9


class Rule(Protocol):
    """The update rule of an optimiser, in place."""

    def __call__(
        self, parameters: list[Tensor], gradients: list[Tensor], moments: dict[str, list[Tensor]], rate: float
    ) -> None:
        """Update the parameters.

        Args:
            parameters: Tensors to update.
            gradients: Gradient of the loss by each parameter, of the same shape.
            moments: State of the optimiser, by name, one tensor for each parameter; empty before the first step.
            rate: Learning rate.
        """
        ...


class Optimiser:
    """An optimiser and the parameters that it updates.

    Attributes:
        learning_rate: Learning rate of the next step.
        moments: What is remembered, by name, one tensor for each parameter; empty before the first step.
    """

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float, rule: Rule) -> None:
        """Store the parameters; every step reads their ``grad``."""
        self.learning_rate = learning_rate
        self._parameters, self._rule = list(parameters), rule
        self.moments: dict[str, list[Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter; raises a ValueError if one has no gradient."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if len(gradients) < len(self._parameters):
            raise ValueError("a parameter has no gradient")
        self._rule(self._parameters, gradients, self.moments, self.learning_rate)


def _zeros(parameters: Sequence[Tensor], moments: dict[str, list[Tensor]], *names: str) -> list[list[Tensor]]:
    """The moments of the given names, then the step counts; zeros before the first step."""
    if not moments:
        moments["step"] = [torch.zeros((), device=parameter.device) for parameter in parameters]
        for name in names:
            moments[name] = [torch.zeros_like(parameter) for parameter in parameters]
    return [moments[name] for name in (*names, "step")]


def _adam(parameters: list[Tensor], gradients: list[Tensor], moments: dict[str, list[Tensor]], rate: float) -> None:
    """Adam (Kingma & Ba 2015)."""
    averages, squares, steps = _zeros(parameters, moments, "exp_avg", "exp_avg_sq")
    adam(
        parameters,
        gradients,
        averages,
        squares,
        [],
        steps,
        fused=True,
        amsgrad=False,
        beta1=0.9,
        beta2=0.999,
        lr=rate,
        weight_decay=0.0,
        eps=EPSILON,
        maximize=False,
    )


def _rmsprop(parameters: list[Tensor], gradients: list[Tensor], moments: dict[str, list[Tensor]], rate: float) -> None:
    """RMSprop (Tieleman & Hinton 2012)."""
    squares, steps = _zeros(parameters, moments, "square_avg")
    rmsprop(
        parameters,
        gradients,
        squares,
        [],
        [],
        steps,
        lr=rate,
        alpha=DECAY,
        eps=EPSILON,
        weight_decay=0.0,
        momentum=0.0,
        centered=False,
    )


def _sgd(parameters: list[Tensor], gradients: list[Tensor], moments: dict[str, list[Tensor]], rate: float) -> None:
    """Gradient descent with momentum."""
    if not moments:
        moments["momentum_buffer"] = [torch.zeros_like(parameter) for parameter in parameters]
    sgd(
        parameters,
        gradients,
        list(moments["momentum_buffer"]),
        fused=True,
        weight_decay=0.0,
        momentum=MOMENTUM,
        lr=rate,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )


OPTIMISERS: dict[str, Callable[[Sequence[Tensor], float], Optimiser]] = {
    "adam": lambda parameters, rate: Optimiser(parameters, rate, _adam),
    "rmsprop": lambda parameters, rate: Optimiser(parameters, rate, _rmsprop),
    "sgd": lambda parameters, rate: Optimiser(parameters, rate, _sgd),
}
"""Optimisers by name."""
