"""Frozen draws of the weights, and their forward pass: the hot path of every answer.

Draw k of a seed is a function of (posterior, seed, k) alone: its random numbers come from counter-based
generators keyed by ``(seed, j)`` for it and for those before it that it balances, see `model.sampling`. The first
64 of 256 draws are the 64, on every device. Draw k uses member ``k mod M``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from model.networks import ACTIVATIONS
from model.sampling import coupled_normals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from model.networks import Architecture

__all__ = ["Draws", "forward", "make_draws", "mean_network", "mirrored"]

TILE_FLOATS = 2**20
"""Hidden values computed at a time: 4 MiB, about what stays in a core's cache."""


@dataclass(frozen=True, slots=True)
class Draws:
    """S weight vectors, layer by layer.

    Attributes:
        weights: One ``[S, inputs, outputs]`` a layer.
        biases: One ``[S, 1, outputs]`` a layer.
        members: Member of each draw, ``[S]``.
        activation: A key of `model.networks.ACTIVATIONS`.
        skip: Whether the last layer also reads the inputs.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    members: Tensor
    activation: str
    skip: bool

    def __len__(self) -> int:
        return len(self.members)

    def first(self, samples: int) -> Draws:
        """The first draws, as views."""
        return self._choose(slice(samples))

    def of_members(self, members: Sequence[int]) -> Draws:
        """The draws of some members, copied."""
        return self._choose(torch.isin(self.members, torch.tensor(members, device=self.members.device)))

    def _choose(self, which: slice | Tensor) -> Draws:
        return Draws(
            tuple(weight[which] for weight in self.weights),
            tuple(bias[which] for bias in self.biases),
            self.members[which],
            self.activation,
            self.skip,
        )


def make_draws(
    tensors: Mapping[str, Tensor],
    architecture: Architecture,
    *,
    seed: int,
    samples: int,
    device: torch.device | None = None,
) -> Draws:
    """Draws ``w = mu + softplus(rho) epsilon`` (Blundell et al. 2015, section 3.2).

    Args:
        tensors: mu and rho by the names of `Architecture.shapes`, on the CPU.
        architecture: The network's sizes.
        seed: Seed of the draws.
        samples: S, at least 1.
        device: Where the draws are to be used.

    Returns:
        The draws.
    """
    means = [tensors[name].detach() for name in architecture.shapes() if name.endswith(".mu")]
    rhos = [tensors[name].detach() for name in architecture.shapes() if name.endswith(".rho")]
    sizes = [mean[0].numel() for mean in means]
    epsilon = coupled_normals(seed, samples, architecture.members, sum(sizes))
    members = torch.arange(samples) % architecture.members
    drawn = []
    for mean, rho, noise in zip(
        means, rhos, torch.split(torch.from_numpy(epsilon), sizes, dim=1), strict=True
    ):
        sigma = functional.softplus(rho)
        drawn.append(
            torch.addcmul(mean[members], sigma[members], noise.reshape(samples, *mean.shape[1:])).to(device)
        )
    return Draws(
        tuple(drawn[0::2]), tuple(drawn[1::2]), members.to(device), architecture.activation, architecture.skip
    )


def mean_network(
    tensors: Mapping[str, Tensor], architecture: Architecture, device: torch.device | None = None
) -> Draws:
    """The mu-only networks as M draws without randomness: their outputs' average is the answer to ``samples=0``."""
    means = [tensors[name].detach().to(device) for name in architecture.shapes() if name.endswith(".mu")]
    members = torch.arange(architecture.members, device=device)
    return Draws(tuple(means[0::2]), tuple(means[1::2]), members, architecture.activation, architecture.skip)


def mirrored(draws: Draws, means: Draws) -> Draws:
    """The draws at the other side of their means, ``2 mu - w``: where a function differs there, it is not even.

    Args:
        draws: S draws.
        means: `mean_network` of the same posterior, on the same device.
    """
    return Draws(
        tuple(
            2.0 * mean[draws.members] - weight
            for mean, weight in zip(means.weights, draws.weights, strict=True)
        ),
        tuple(
            2.0 * mean[draws.members] - bias for mean, bias in zip(means.biases, draws.biases, strict=True)
        ),
        draws.members,
        draws.activation,
        draws.skip,
    )


def forward(draws: Draws, rows: Tensor) -> Tensor:
    """Outputs of every row under every draw, tile by tile.

    Args:
        draws: S draws.
        rows: Encoded rows, ``[B, D]``, float32, on the draws' device.

    Returns:
        ``[S, B, P]``, standardised.
    """
    samples, batch = len(draws), len(rows)
    outputs = rows.new_empty((samples, batch, draws.weights[-1].shape[2]))
    widest = max(weight.shape[2] for weight in draws.weights)
    rows_per_tile = max(1, min(batch, 1024))
    draws_per_tile = max(1, min(samples, TILE_FLOATS // (rows_per_tile * widest)))
    activation = ACTIVATIONS[draws.activation]
    with torch.inference_mode():
        for first_row in range(0, batch, rows_per_tile):
            tile_rows = slice(first_row, first_row + rows_per_tile)
            tile_inputs = rows[tile_rows]
            for first_draw in range(0, samples, draws_per_tile):
                tile = slice(first_draw, first_draw + draws_per_tile)
                inputs = tile_inputs.expand(min(draws_per_tile, samples - first_draw), -1, -1)
                hidden = inputs
                for index, (weight, bias) in enumerate(zip(draws.weights, draws.biases, strict=True)):
                    if index:
                        hidden = activation(hidden)
                    start = bias[tile]
                    width = hidden.shape[2]
                    if width < weight.shape[1]:  # the skip's weights come last
                        start = torch.baddbmm(start, inputs, weight[tile, width:])
                    hidden = torch.baddbmm(start, hidden, weight[tile, :width])
                outputs[tile, tile_rows] = hidden
    return outputs
