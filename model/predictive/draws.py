"""Draws of the weights, ``w = mu + softplus(rho) epsilon`` (Blundell et al. 2015, section 3.2), and their cache.

Draw k of a seed is a function of (posterior, seed, k) alone. So the first 64 of 256 draws equal the 64 draws of S = 64,
on every device. Draw k uses member ``k mod M``. Its random numbers come from a counter-based generator, at the counters
of draw k and of the earlier draws that k is coupled to (`model.predictive.normals`). Compiled code and NumPy make the
same draws to the bit. Draws have the memory layout of the forward pass (`model.predictive.torch_engine`).

The draws of a posterior are made for the first request of a seed, and kept for later ones, since making S draws takes
longer than answering a few rows with them. Draws in the cache serve every smaller S. If S draws exceed the memory
limit, the first ones are kept, and the others are made again, block by block, whenever they are needed. The caches of
several posteriors can share one limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from murho.model.predictive.draw_room import DrawRoom
from murho.model.predictive.normals import BLOCK, coupled_normals, normal_table
from murho.model.runtime import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from murho.model.bbb.network import Architecture

__all__ = [
    "KEPT_SEEDS",
    "ONE",
    "DrawCache",
    "DrawMaker",
    "Draws",
    "Kept",
    "make_draws",
    "mean_network",
    "mirrored",
    "units_of_one",
]

ONE = {"relu": 1.0, "silu": 1.2784645427610737, "sigmoid": 40.0}
"""The input at which each of `model.bbb.network.ACTIVATIONS` is 1 in float32."""


@dataclass(frozen=True, slots=True)
class Draws:
    """S weight vectors, layer by layer, as `model.predictive.torch_engine.forward` reads them.

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


ALIGNED = 16
"""Layers begin at a multiple of this many numbers: a line of the processor's cache."""


class DrawMaker:
    """Makes the draws of one posterior for one device."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        architecture: Architecture,
        device: torch.device | None = None,
        compiled: Callable[..., None] | None = None,
    ) -> None:
        """Prepare mu and sigma.

        Args:
            tensors: mu and rho by the names of `Architecture.shapes`, on the CPU.
            architecture: The network's sizes.
            device: The device that draws are copied to.
            compiled: `model.predictive.compiled.passes.draw_weights`; None: NumPy.
        """
        names = [name for name in architecture.shapes() if name.endswith(".mu")]
        self._shapes = [tuple(tensors[name].shape[1:]) for name in names]
        self._mu = torch.cat([tensors[name].detach().flatten(1) for name in names], dim=1).numpy()
        rhos = [tensors[f"{name.removesuffix('.mu')}.rho"].detach().flatten(1) for name in names]
        self._sigma = functional.softplus(torch.cat(rhos, dim=1)).numpy()
        self._architecture, self._device, self._compiled = architecture, device, compiled

    def make(self, seed: int, samples: int, start: int = 0) -> Draws:
        """Make draws ``start`` to ``start + samples - 1``.

        Args:
            seed: Seed of the draws.
            samples: S, at least 1.
            start: Number of the first draw, a multiple of `model.predictive.normals.BLOCK`.
        """
        members = torch.arange(start, start + samples) % self._architecture.members
        draws = (self._by_numpy if self._compiled is None else self._by_compiled)(seed, samples, start, members)
        if self._device is None or self._device.type == "cpu":
            return draws
        layers = tuple(layer.to(self._device) for layer in draws.layers)
        return Draws(layers, members.to(self._device), draws.activation, draws.skip)

    def _by_numpy(self, seed: int, samples: int, start: int, members: Tensor) -> Draws:
        weights = coupled_normals(seed, samples, self._architecture.members, self._mu.shape[1], start=start)
        for row, member in zip(weights, members.tolist(), strict=True):  # row by row: a draw stays in the CPU's cache
            row *= self._sigma[member]
            row += self._mu[member]
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        parts = torch.split(torch.from_numpy(weights), sizes, dim=1)
        drawn = [part.reshape(samples, *shape) for shape, part in zip(self._shapes, parts, strict=True)]
        activation, skip = self._architecture.activation, self._architecture.skip
        return Draws.of(drawn[0::2], drawn[1::2], members, activation=activation, skip=skip)

    def _by_compiled(self, seed: int, samples: int, start: int, members: Tensor) -> Draws:
        if start % BLOCK:
            raise ValueError(f"draws start at a multiple of {BLOCK}, not at {start}")
        fill, layout = self._compiled, []
        carried = units_of_one(len(self._shapes) // 2, self._architecture.skip)
        at = into = 0
        for index, (inputs, outputs) in enumerate(self._shapes[0::2]):
            units, inputs = outputs + (index < carried), inputs + 1
            # As in `Draws.of`: the inputs are the outer dimension of the first layer.
            steps = (inputs * units, inputs, 1) if index else (units, 1, samples * units)
            layout.append((at, inputs, outputs, into, *steps))
            at, into = at + inputs * outputs, into + -(-samples * inputs * units // ALIGNED) * ALIGNED
        numbers = np.empty(into, dtype=np.float32)
        arrays = seed, start, self._mu, self._sigma, normal_table(), np.array(layout, dtype=np.int64), numbers

        def fill_blocks(blocks: slice) -> None:
            if fill is not None:
                fill(*arrays, BLOCK * blocks.start, min(BLOCK * blocks.stop, samples))

        in_parts(-(-samples // BLOCK), 1, fill_blocks)
        layers = []
        whole = torch.from_numpy(numbers)
        for index, (_, inputs, outputs, place, *strides) in enumerate(layout):
            units = outputs + (index < carried)
            layer = whole.as_strided((samples, units, inputs), strides, place)
            if index < carried:
                layer[:, outputs] = 0.0
                layer[:, outputs, inputs - 1] = ONE[self._architecture.activation]
            layers.append(layer)
        return Draws(tuple(layers), members, self._architecture.activation, self._architecture.skip)


def make_draws(
    tensors: Mapping[str, Tensor], architecture: Architecture, *, seed: int, samples: int, start: int = 0
) -> Draws:
    """Make draws once; takes the arguments of `DrawMaker` and `DrawMaker.make`."""
    return DrawMaker(tensors, architecture).make(seed, samples, start)


KEPT_SEEDS = 64
"""Limit of the seeds of a posterior."""


@dataclass(slots=True)
class Kept:
    """The draws of a seed and, once requested, the mirror images of the first of them.

    Attributes:
        draws: The draws.
        images: Mirror images of the first of them.
        used: Number of the latest use, see `model.predictive.draw_room.DrawRoom.uses`.
    """

    draws: Draws
    images: Draws | None = None
    used: int = 0

    @property
    def nbytes(self) -> int:
        """Memory of all, in bytes."""
        return self.draws.nbytes + (0 if self.images is None else self.images.nbytes)


class DrawCache:
    """The draws of one posterior on one device, with those of recent seeds in memory.

    Not thread-safe, but for `missing`.

    Attributes:
        means: The mu-only networks, see `model.predictive.draws.mean_network`.
        most_seeds: Largest number of seeds.
        bytes_per_draw: Memory of one draw.
        kept: The draws by their seeds.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        architecture: Architecture,
        device: torch.device,
        *,
        most_seeds: int = KEPT_SEEDS,
        room: DrawRoom | None = None,
        compiled: Callable[..., None] | None = None,
    ) -> None:
        """Prepare an empty cache.

        Args:
            tensors: mu and rho by the names of `model.bbb.network.Architecture.shapes`, on the CPU.
            architecture: The network's sizes.
            device: The device of the draws.
            most_seeds: See the class.
            room: Memory for the draws; None: a room of its own.
            compiled: Makes the draws, see `model.predictive.draws.DrawMaker`.
        """
        self.means = mean_network(tensors, architecture, device)
        self.most_seeds = most_seeds
        self.bytes_per_draw = self.means.nbytes // len(self.means)
        self._maker = DrawMaker(tensors, architecture, device, compiled)
        self.kept: dict[int, Kept] = {}
        self._room = DrawRoom() if room is None else room
        self._room.add(self)

    def __len__(self) -> int:
        """Number of seeds in the cache."""
        return len(self.kept)

    @property
    def nbytes(self) -> int:
        """Memory of the cache on the device, in bytes."""
        return sum(kept.nbytes for kept in self.kept.values())

    def holds(self, samples: int) -> bool:
        """Whether S draws fit into the cache."""
        return samples * self.bytes_per_draw <= self._room.most_bytes

    def missing(self, samples: int, seed: int) -> int:
        """How many draws `parts` would make; any thread may ask.

        Draws that do not fit into the cache are made again for every tile of rows; they are counted once.
        """
        kept = self.kept.get(seed)  # one operation of a dictionary, which no other thread can interrupt
        there = 0 if kept is None else len(kept.draws)
        if self.holds(samples):
            return samples if there < samples else 0
        return samples - min(there, samples)

    def parts(self, samples: int, seed: int) -> Iterator[Draws]:
        """The first S draws of a seed, part by part, within the memory limit.

        Args:
            samples: S, at least 1.
            seed: Seed of the draws.
        """
        if self.holds(samples):
            yield self.first(samples, seed)
            return
        # Leave room for one block beside the draws in the cache.
        blocks = self._room.most_bytes // (BLOCK * self.bytes_per_draw)
        kept = min(samples, BLOCK * max(0, blocks - 1))
        if kept:
            yield self.first(kept, seed)
        for start in range(kept, samples, BLOCK):
            yield self._make(min(BLOCK, samples - start), seed, start)

    def image_parts(self, samples: int, seed: int) -> Iterator[Draws]:
        """The mirror images of `parts`, by `model.predictive.draws.mirrored`; takes the arguments of `parts`."""
        if 2 * samples * self.bytes_per_draw <= self._room.most_bytes:
            yield self.images(samples, seed)
            return
        for part in self.parts(samples, seed):
            for start in range(0, len(part), BLOCK):
                yield mirrored(part.some(slice(start, start + BLOCK)), self.means)

    def first(self, samples: int, seed: int) -> Draws:
        """The first S draws of a seed.

        Args:
            samples: S, at least 1.
            seed: Seed of the draws.
        """
        return self._of(samples, seed).draws.first(samples)

    def images(self, samples: int, seed: int) -> Draws:
        """The mirror images of `first`, by `draws.mirrored`; takes the arguments of `first`."""
        kept = self._of(samples, seed)
        images = kept.images
        if images is None or len(images) < samples:
            images = kept.images = mirrored(kept.draws.first(samples), self.means)
            self._room.make_room()
        return images.first(samples)

    def _of(self, samples: int, seed: int) -> Kept:
        """The entry of a seed with at least S draws, which becomes the most recent entry."""
        kept = self.kept.get(seed)
        if kept is not None and len(kept.draws) >= samples:
            kept.used = next(self._room.uses)
            return kept
        kept = Kept(self._make(samples, seed), used=next(self._room.uses))
        with self._room.lock:
            self.kept[seed] = kept
            if len(self.kept) > self.most_seeds:
                del self.kept[min(self.kept, key=lambda each: self.kept[each].used)]
        self._room.make_room()
        return kept

    def _make(self, samples: int, seed: int, start: int = 0) -> Draws:
        return self._maker.make(seed, samples, start)
