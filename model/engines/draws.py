"""Draws of the weights, in the memory layout of the forward pass (`model.engines.forward`).

Draw k of a seed is a function of (posterior, seed, k) alone (`model.engines.draw_maker`). So the first 64 of 256 draws
equal the 64 draws of S = 64, on every device. Draw k uses member ``k mod M``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from murho.model.networks.bayesian_network import Architecture

__all__ = ["ONE", "Draws", "mean_network", "mirrored", "units_of_one"]

ONE = {"relu": 1.0, "silu": 1.2784645427610737, "sigmoid": 40.0}
"""The input at which each of `model.networks.bayesian_network.ACTIVATIONS` is 1 in float32."""


@dataclass(frozen=True, slots=True)
class Draws:
    """S weight vectors, layer by layer, as `model.engines.forward.forward` reads them.

    A layer of a draw is one matrix ``[outputs, inputs + 1]``, which multiplies the inputs and a 1 for the bias. The 1
    of the next layer is the output of an additional unit, whose row gives a constant 1. The last hidden layer has no
    such unit if there is a skip, because the skip brings the 1 of the network's inputs.

    Attributes:
        layers: One ``[S, outputs (+ 1), inputs + 1]`` per layer. With a skip, the inputs of the last layer are the
            hidden units, then the network's inputs.
        members: Member of each draw, ``[S]``.
        activation: A key of `model.networks.bayesian_network.ACTIVATIONS`.
        skip: Whether the last layer also reads the inputs.
    """

    layers: tuple[Tensor, ...]
    members: Tensor
    activation: str
    skip: bool

    @classmethod
    def of(
        cls,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor],
        members: Tensor,
        *,
        activation: str,
        skip: bool,
    ) -> Self:
        """Copy weights and biases into the layout of the forward pass.

        Args:
            weights: One ``[S, inputs, outputs]`` per layer.
            biases: One ``[S, 1, outputs]`` per layer.
            members: Member of each draw, ``[S]``.
            activation: A key of `model.networks.bayesian_network.ACTIVATIONS`.
            skip: Whether the last layer also reads the inputs.
        """
        carried = units_of_one(len(weights), skip)
        layers = []
        for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            samples, inputs, outputs = weight.shape
            units = outputs + (index < carried)
            if index:
                layer = weight.new_empty((samples, units, inputs + 1))
            else:  # one product for all draws, which is fastest with the inputs as the outer dimension
                layer = weight.new_empty((inputs + 1, samples, units)).permute(1, 2, 0)
            layer[:, :outputs, :inputs] = weight.transpose(1, 2)
            layer[:, :outputs, inputs] = bias.squeeze(1)
            if index < carried:
                layer[:, outputs] = 0.0
                layer[:, outputs, inputs] = ONE[activation]
            layers.append(layer)
        return cls(tuple(layers), members, activation, skip)

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """One ``[S, inputs, outputs]`` per layer, as views."""
        return tuple(layer[..., :-1].transpose(1, 2) for layer in self._without_constant_units())

    @property
    def biases(self) -> tuple[Tensor, ...]:
        """One ``[S, 1, outputs]`` per layer, as views."""
        return tuple(layer[..., -1:].transpose(1, 2) for layer in self._without_constant_units())

    @property
    def nbytes(self) -> int:
        """Memory of the layers, in bytes."""
        return sum(layer.nbytes for layer in self.layers)

    def __len__(self) -> int:
        return len(self.members)

    def first(self, samples: int) -> Draws:
        """The first S draws, as views."""
        return self if samples >= len(self) else self._choose(slice(samples))

    def some(self, which: slice) -> Draws:
        """A slice of the draws, as views."""
        return self._choose(which)

    def where(self, mask: Tensor) -> Draws:
        """The draws where a mask ``[S]`` is true, copied."""
        return self._choose(mask)

    def of_members(self, members: Sequence[int]) -> Draws:
        """The draws of the given members, copied."""
        return self._choose(torch.isin(self.members, torch.tensor(members, device=self.members.device)))

    def double(self) -> Draws:
        """The draws in double precision, copied."""
        return Draws(tuple(layer.double() for layer in self.layers), self.members, self.activation, self.skip)

    def _without_constant_units(self) -> list[Tensor]:
        """The layers without the units of constant 1."""
        carried = units_of_one(len(self.layers), self.skip)
        return [layer[:, :-1] if index < carried else layer for index, layer in enumerate(self.layers)]

    def _choose(self, which: slice | Tensor) -> Draws:
        return Draws(tuple(layer[which] for layer in self.layers), self.members[which], self.activation, self.skip)


def units_of_one(layers: int, skip: bool) -> int:
    """Number of layers, from the first one on, that have a unit of constant 1."""
    return max(0, layers - (2 if skip else 1))


def mean_network(
    tensors: Mapping[str, Tensor], architecture: Architecture, device: torch.device | None = None
) -> Draws:
    """The mu-only networks as M draws; the average of their outputs is the answer to ``samples=0``."""
    means = [tensors[name].detach().to(device) for name in architecture.shapes() if name.endswith(".mu")]
    members = torch.arange(architecture.members, device=device)
    return Draws.of(means[0::2], means[1::2], members, activation=architecture.activation, skip=architecture.skip)


def mirrored(draws: Draws, means: Draws) -> Draws:
    """The mirror images of draws about their means, ``2 mu - w``.

    Args:
        draws: S draws.
        means: `mean_network` of the same posterior, on the same device.
    """

    def mirror(middles: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
        return [2.0 * middle[draws.members] - value for middle, value in zip(middles, values, strict=True)]

    return Draws.of(
        mirror(means.weights, draws.weights),
        mirror(means.biases, draws.biases),
        draws.members,
        activation=draws.activation,
        skip=draws.skip,
    )
