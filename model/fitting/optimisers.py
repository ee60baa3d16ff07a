"""Gradient methods: PyTorch's update rules in their functional form.

PyTorch's optimiser classes load its compiler when the first one is made. A fit does not need it, and it costs seconds
of processor time, out of the 48 that the search on a small table has, and 100 MiB. The update rules are the same to
the bit.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.rmsprop import rmsprop
from torch.optim.sgd import sgd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["OPTIMISERS", "Optimiser"]

DECAY = 0.99
"""Of the squared gradients of RMSprop."""
EPSILON = 1e-8
MOMENTUM = 0.9
WEIGHT_DECAY = 0.01
"""Of AdamW, for each unit of the learning rate; it acts on mu and rho beside the prior's."""


class Rule(Protocol):
    """One step of a method, in place."""

    def __call__(
        self, parameters: list[Tensor], gradients: list[Tensor], moments: dict[str, list[Tensor]], rate: float
    ) -> None:
        """Moves the parameters.

        Args:
            parameters: To be moved.
            gradients: Of the loss by each, of its shape.
            moments: What the method remembers, by name, one a parameter; empty before the first step.
            rate: Learning rate.
        """
        ...


class Optimiser:
    """A method at work on some parameters.

    Attributes:
        learning_rate: Of the next step.
    """

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float, rule: Rule) -> None:
        """Takes the parameters, whose ``grad`` every step reads."""
        self.learning_rate = learning_rate
        self._parameters, self._rule = list(parameters), rule
        self._moments: dict[str, list[Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Moves every parameter along its gradient; a ValueError if one has none."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if len(gradients) < len(self._parameters):
            raise ValueError("a parameter has no gradient")
        self._rule(self._parameters, gradients, self._moments, self.learning_rate)

    def state(self) -> dict[int, dict[str, Tensor]]:
        """What is remembered of each parameter, by its number and a name; empty before the first step."""
        state: dict[int, dict[str, Tensor]] = defaultdict(dict)
        for name, moments in self._moments.items():
            for number, moment in enumerate(moments):
                state[number][name] = moment
        return dict(state)

    def load(self, state: Mapping[int, Mapping[str, Tensor]]) -> None:
        """The inverse of `state`."""
        names = state[0] if state else ()
        self._moments = {
            name: [
                state[number][name].to(parameter.device) for number, parameter in enumerate(self._parameters)
            ]
            for name in names
        }


def _zeros(parameters: Sequence[Tensor], moments: dict[str, list[Tensor]], *names: str) -> list[list[Tensor]]:
    """Moments by name, zeros before the first step, and the count of steps."""
    if not moments:
        moments["step"] = [torch.zeros((), device=parameter.device) for parameter in parameters]
        for name in names:
            moments[name] = [torch.zeros_like(parameter) for parameter in parameters]
    return [moments[name] for name in (*names, "step")]


def _adam(weight_decay: float) -> Rule:
    """Adam (Kingma & Ba 2015), or with weight decay AdamW (Loshchilov & Hutter 2019)."""

    def step(
        parameters: list[Tensor], gradients: list[Tensor], moments: dict[str, list[Tensor]], rate: float
    ) -> None:
        averages, squares, steps = _zeros(parameters, moments, "exp_avg", "exp_avg_sq")
        adam(
            parameters,
            gradients,
            averages,
            squares,
            [],
            steps,
            fused=True,
            decoupled_weight_decay=weight_decay > 0.0,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=rate,
            weight_decay=weight_decay,
            eps=EPSILON,
            maximize=False,
        )

    return step


def _rmsprop(
    parameters: list[Tensor], gradients: list[Tensor], moments: dict[str, list[Tensor]], rate: float
) -> None:
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


def _sgd(
    parameters: list[Tensor], gradients: list[Tensor], moments: dict[str, list[Tensor]], rate: float
) -> None:
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
    "adam": lambda parameters, rate: Optimiser(parameters, rate, _adam(0.0)),
    "adamw": lambda parameters, rate: Optimiser(parameters, rate, _adam(WEIGHT_DECAY)),
    "rmsprop": lambda parameters, rate: Optimiser(parameters, rate, _rmsprop),
    "sgd": lambda parameters, rate: Optimiser(parameters, rate, _sgd),
}
"""Methods by name."""
