"""Networks without a posterior, of the same sizes: gradient descent with momentum, plain or with dropout.

Dropout is that of Srivastava et al. 2014 for MNIST: inputs are kept with probability 0.8, hidden units with 0.5. At
prediction it is off, and kept values are scaled up in training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.mnist_parts.images import CLASSES

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PointNetwork", "PointRecipe", "dropout_of", "fit_point_network"]


@dataclass(frozen=True, slots=True)
class PointRecipe:
    """How a network is fitted.

    Attributes:
        hidden: Widths of the hidden layers.
        input_dropout: Probability of leaving out an input.
        hidden_dropout: Probability of leaving out a hidden unit.
        epochs: Passes over the images.
        batch_size: Images in a step.
        learning_rate: First learning rate; it falls to zero along a cosine.
        seed: Seed of the weights, of minibatches and of dropout.
    """

    hidden: tuple[int, ...]
    input_dropout: float = 0.0
    hidden_dropout: float = 0.0
    epochs: int = 60
    batch_size: int = 100
    learning_rate: float = 0.03
    seed: int = 0


class PointNetwork:
    """A fully connected rectified network.

    Attributes:
        weights: ``[inputs, outputs]`` of each layer.
        biases: ``[outputs]`` of each layer.
    """

    def __init__(self, inputs: int, hidden: tuple[int, ...], generator: torch.Generator) -> None:
        """Start with He-normal weights.

        Args:
            inputs: D.
            hidden: Widths of the hidden layers.
            generator: Source of the weights.
        """
        sizes = (inputs, *hidden, CLASSES)
        self.weights = [
            (torch.randn(below, above, generator=generator) * (2.0 / below) ** 0.5).requires_grad_()
            for below, above in pairwise(sizes)
        ]
        self.biases = [torch.zeros(above, requires_grad=True) for above in sizes[1:]]

    def __call__(self, rows: Tensor, leave_out: Callable[[Tensor, int], Tensor] = lambda values, _: values) -> Tensor:
        """Logits, ``[B, C]``.

        Args:
            rows: ``[B, D]``.
            leave_out: Dropout of the inputs of a layer, by the layer's number.
        """
        hidden = rows
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = torch.addmm(bias, leave_out(torch.relu_(hidden) if number else hidden, number), weight)
        return hidden


def dropout_of(recipe: PointRecipe, generator: torch.Generator) -> Callable[[Tensor, int], Tensor]:
    """Leaves out inputs of a layer, given by its number, and scales up the others.

    Args:
        recipe: Its rates.
        generator: Source of what is left out.
    """

    def leave_out(values: Tensor, number: int) -> Tensor:
        rate = recipe.hidden_dropout if number else recipe.input_dropout
        if rate == 0.0:
            return values
        return values * torch.empty_like(values).bernoulli_(1.0 - rate, generator=generator).div_(1.0 - rate)

    return leave_out


def fit_point_network(
    recipe: PointRecipe, inputs: Tensor, digits: Tensor, say: Callable[[str], None] = print
) -> PointNetwork:
    """Fit a network.

    Args:
        recipe: The recipe.
        inputs: ``[N, D]``.
        digits: ``[N]``.
        say: Gets a line every ten epochs.
    """
    generator = torch.Generator().manual_seed(recipe.seed)
    network = PointNetwork(inputs.shape[1], recipe.hidden, generator)
    optimiser = torch.optim.SGD([*network.weights, *network.biases], lr=recipe.learning_rate, momentum=0.9)
    leave_out = dropout_of(recipe, generator)
    minibatches = math.ceil(len(inputs) / recipe.batch_size)
    total, labels = recipe.epochs * minibatches, digits.long()
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(inputs), generator=generator)
        summed = 0.0
        for number, rows in enumerate(order.split(recipe.batch_size)):
            done = (epoch * minibatches + number) / total
            loss = functional.cross_entropy(network(inputs[rows], leave_out), labels[rows])
            for parameter in (*network.weights, *network.biases):
                parameter.grad = None
            loss.backward()
            optimiser.param_groups[0]["lr"] = recipe.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))
            optimiser.step()
            summed += float(loss.detach())
        if (epoch + 1) % 10 == 0 or epoch + 1 == recipe.epochs:
            say(f"epoch {epoch + 1}  nll {summed / minibatches:.4g}")
    return network
