"""Draws of the weights, ``w = mu + softplus(rho) epsilon`` (Blundell et al. 2015, section 3.2), and their cache.

Draw k of a seed is a function of (posterior, seed, k) alone. So the first 64 of 256 draws equal the 64 draws of S = 64,
on every device. Draw k uses member ``k mod M``. Draws have the memory layout of the forward pass
(`model.predictive.forward`).

Their random numbers are quantiles of the words of NumPy's counter-based generator Philox4x64 (Salmon, Moraes, Dror and
Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"), whose counter begins with the number of a block of draws. The
n draws of a member within a block are coupled: each is standard normal, any two have the correlation ``-1 / (n - 1)``,
and the n of them sum to zero. After a whole block, averages of functions linear in the weights then have no Monte Carlo
error. For n = 2 these are antithetic draws. For larger n, quadratic functions such as the spread lose little: their
variance is ``n / (n - 1)`` times that of independent draws.

The draws of a posterior are made for the first request of a seed, and kept for later ones, since making S draws takes
longer than answering a few rows with them. Draws in the cache serve every smaller S. If S draws exceed the memory
limit, they are made again, block by block, whenever they are needed. The caches of several posteriors can share one
limit.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from murho.model.bbb.network import Architecture, without_absent
from murho.model.predictive.draw_cache import DrawCache
from murho.model.runtime import threads_for

BLOCK = 32
"""Draws in a block; the draws of different blocks are independent."""


def draw_coupled_normals(generator: np.random.Philox, block: int, members: int, count: int) -> Tensor:
    """Return standard normal numbers for the draws of one block.

    Subtracting the mean of n independent normals leaves exchangeable ones that sum to zero, with the variance
    ``(n - 1) / n``, which is scaled to 1. A member with one draw in the block has nothing to be coupled to.

    Args:
        generator: Source of the numbers.
        block: Number of the block; it has the draws ``BLOCK * block`` and following.
        members: M; draw k is of member ``k mod M``.
        count: P, the numbers per draw.

    Returns:
        ``[BLOCK, P]``, float32, each row standard normal.
    """
    words = generator.random_raw(-(-BLOCK * count // 2)).view(np.int32)[: BLOCK * count]
    uniform = torch.from_numpy(words).double().add_(0.5).mul_(2.0**-31)  # in (-1, 1)
    return _coupling(members, block * BLOCK % members) @ uniform.erfinv_().float().view(BLOCK, count)


@lru_cache(maxsize=256)
def _coupling(members: int, first: int) -> Tensor:
    """Return what makes coupled standard normals of independent values of erfinv, ``[BLOCK, BLOCK]``.

    Args:
        members: M.
        first: Member of the block's first draw.
    """
    own = (torch.arange(BLOCK) + first) % members
    together = (own.unsqueeze(1) == own).double()
    size = together.sum(dim=1, keepdim=True)
    centred = torch.eye(BLOCK) - torch.where(size > 1.0, together / size, 0.0)
    return (centred * (2.0 * size / (size - 1.0).clamp_min(1.0)).sqrt()).float()


ONE = {"relu": 1.0, "silu": 1.2784645427610737, "sigmoid": 40.0}
"""The input at which each of `model.bbb.network.ACTIVATIONS` is 1 in float32."""


@dataclass(frozen=True, slots=True)
class Draws:
    """S weight vectors, layer by layer, as `model.predictive.forward.forward` reads them.

    A layer of a draw is one matrix ``[outputs, inputs + 1]``, which multiplies the inputs and a 1 for the bias. The 1
    of the next layer is the output of an additional unit, whose row gives a constant 1. The last hidden layer has no
    such unit if there is a skip, because the skip brings the 1 of the network's inputs.

    Attributes:
        layers: One ``[S, outputs (+ 1), inputs + 1]`` per layer. With a skip, the inputs of the last layer are the
            hidden units, then the network's inputs.
        members: Member of each draw, ``[S]``.
        activation: A key of `model.bbb.network.ACTIVATIONS`.
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
            activation: A key of `model.bbb.network.ACTIVATIONS`.
            skip: Whether the last layer also reads the inputs.
        """
        carried = _units_of_one(len(weights), skip)
        layers = []
        for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            samples, inputs, outputs = weight.shape
            layer = _empty_layer(weight, index, samples, outputs + (index < carried), inputs + 1)
            layer[:, :outputs, :inputs] = weight.transpose(1, 2)
            layer[:, :outputs, inputs] = bias.squeeze(1)
            if index < carried:
                layer[:, outputs] = 0.0
                layer[:, outputs, inputs] = ONE[activation]
            layers.append(layer)
        return cls(tuple(layers), members, activation, skip)

    @property
    def nbytes(self) -> int:
        """Memory of the layers, in bytes."""
        return sum(layer.nbytes for layer in self.layers)

    def __len__(self) -> int:
        return len(self.members)

    def some(self, which: slice | Tensor) -> Draws:
        """Return some of the draws: views for a slice; copies for a mask or for numbers of draws."""
        return Draws(tuple(layer[which] for layer in self.layers), self.members[which], self.activation, self.skip)

    def double(self) -> Draws:
        """Return the draws in double precision, copied."""
        return replace(self, layers=tuple(layer.double() for layer in self.layers))


def _units_of_one(layers: int, skip: bool) -> int:
    """Return the number of layers, from the first one on, that have a unit of constant 1."""
    return max(0, layers - (2 if skip else 1))


def _empty_layer(like: Tensor, index: int, samples: int, units: int, inputs: int) -> Tensor:
    """Memory for a layer of S draws, ``[S, units, inputs]``."""
    if index:
        return like.new_empty((samples, units, inputs))
    # One product for all draws, which is fastest with the inputs as the outer dimension.
    return like.new_empty((inputs, samples, units)).permute(1, 2, 0)


def mean_network(
    tensors: Mapping[str, Tensor], architecture: Architecture, device: torch.device | None = None
) -> Draws:
    """Return the mu-only networks as M draws; the average of their outputs is the answer to ``samples=0``.

    Absent weights (`model.bbb.network.absent_weights`) are 0.
    """
    tensors = without_absent(tensors, architecture)
    means = [tensors[name].detach().to(device) for name in architecture.shapes() if name.endswith(".mu")]
    members = torch.arange(architecture.members, device=device)
    return Draws.of(means[0::2], means[1::2], members, activation=architecture.activation, skip=architecture.skip)


class DrawMaker:
    """Makes the draws of one posterior for one device."""

    def __init__(
        self, tensors: Mapping[str, Tensor], architecture: Architecture, device: torch.device | None = None
    ) -> None:
        """Prepare mu and sigma.

        Args:
            tensors: mu and rho by the names of `Architecture.shapes`, on the CPU.
            architecture: The network's sizes.
            device: The device that draws are copied to.
        """
        self._mu, self._device = mean_network(tensors, architecture), device
        sigmas = {
            f"{name.removesuffix('.rho')}.mu": functional.softplus(tensors[name].detach())
            for name in architecture.shapes()
            if name.endswith(".rho")
        }
        self._sigma = mean_network({**tensors, **sigmas}, architecture)
        for layer in self._sigma.layers[: _units_of_one(len(self._sigma.layers), architecture.skip)]:
            layer[:, -1] = 0.0  # what is always 1

    def make(self, seed: int, samples: int, start: int = 0) -> Draws:
        """Make draws ``start`` to ``start + samples - 1``.

        Args:
            seed: Seed of the draws.
            samples: S, at least 1.
            start: Number of the first draw, a multiple of `BLOCK`.
        """
        means = self._mu
        members = torch.arange(start, start + samples) % len(means)
        layers = [_empty_layer(layer, index, samples, *layer.shape[1:]) for index, layer in enumerate(means.layers)]
        with threads_for(0):  # two threads take longer: the parts are small
            for first in range(0, samples, BLOCK):
                block, own = (start + first) // BLOCK, members[first : first + BLOCK]
                generator = np.random.Philox(key=seed, counter=[0, 0, 0, block])
                for layer, mu, sigma in zip(layers, means.layers, self._sigma.layers, strict=True):
                    normals = draw_coupled_normals(generator, block, len(means), mu[0].numel())[: len(own)]
                    into = layer[first : first + len(own)]
                    torch.addcmul(mu[own], sigma[own], normals.view(into.shape), out=into)
        placed = tuple(layer.to(self._device) for layer in layers)
        return Draws(placed, members.to(self._device), means.activation, means.skip)


class PosteriorDraws:
    """The draws of one posterior on one device, with those of recent seeds in memory.

    Not thread-safe, but for `missing`.

    Attributes:
        means: The mu-only networks, see `mean_network`.
        bytes_per_draw: Memory of one draw.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        architecture: Architecture,
        device: torch.device,
        *,
        cache: DrawCache[Draws] | None = None,
    ) -> None:
        """Prepare an empty cache.

        Args:
            tensors: mu and rho by the names of `model.bbb.network.Architecture.shapes`, on the CPU.
            architecture: The network's sizes.
            device: The device of the draws.
            cache: Memory for the draws; None: a cache of its own.
        """
        self.means = mean_network(tensors, architecture, device)
        self.bytes_per_draw = self.means.nbytes // len(self.means)
        self._maker = DrawMaker(tensors, architecture, device)
        self._cache = DrawCache() if cache is None else cache
        self._owner = next(self._cache.owners)
        weakref.finalize(self, self._cache.gone.append, self._owner)  # takes no lock, whatever thread collects

    def holds(self, samples: int) -> bool:
        """Whether S draws fit into the cache."""
        return samples * self.bytes_per_draw <= self._cache.most_bytes

    def missing(self, samples: int, seed: int) -> int:
        """How many draws `parts` would make; any thread may ask.

        Draws that do not fit into the cache are made again for every tile of rows; they are counted once.
        """
        kept = self._cache.find(self._owner, seed)
        # Asked once a request: a tensor's own `len` takes as long as all the rest of it.
        return 0 if kept is not None and kept.members.shape[0] >= samples else samples

    def parts(self, samples: int, seed: int) -> Iterable[Draws]:
        """Return the first S draws of a seed, part by part, within the memory limit.

        Args:
            samples: S, at least 1.
            seed: Seed of the draws.
        """
        if self.holds(samples):
            return [self.first(samples, seed)]
        starts = range(0, samples, BLOCK)
        return (self._maker.make(seed, min(BLOCK, samples - start), start) for start in starts)

    def first(self, samples: int, seed: int) -> Draws:
        """Return the first S draws of a seed, which becomes the most recent entry.

        Args:
            samples: S, at least 1.
            seed: Seed of the draws.
        """
        draws = self._cache.find(self._owner, seed)
        kept = 0 if draws is None else len(draws)
        if draws is None or kept < samples:
            draws, kept = self._maker.make(seed, samples), samples
            self._cache.keep(self._owner, seed, draws)
        return draws if kept == samples else draws.some(slice(samples))
