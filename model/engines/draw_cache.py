"""The cache of a posterior's draws: made for the first request of a seed, and kept for later ones.

Making S draws takes longer than answering a few rows with them. Draw k of a seed does not depend on S (see
`model.engines.draw_maker`), and so the draws in the cache serve every smaller S. If S draws exceed the memory limit,
the first ones are kept, and the others are made again, block by block, whenever they are needed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murho.model.engines.coupled_normals import BLOCK
from murho.model.engines.draw_maker import DrawMaker
from murho.model.engines.draws import mean_network, mirrored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch
    from torch import Tensor

    from murho.model.engines.draws import Draws
    from murho.model.networks.bayesian_network import Architecture

__all__ = ["KEPT_BYTES", "KEPT_SEEDS", "DrawCache"]

KEPT_SEEDS = 64
KEPT_BYTES = 2**30
"""Limits of the cache: number of seeds, and bytes of all their draws.

256 draws of three layers of 512 units take half of the bytes. A row takes 50 ms with them, and 4 s without."""


@dataclass(slots=True)
class _Kept:
    """The draws of a seed and, once requested, the mirror images of the first of them."""

    draws: Draws
    images: Draws | None = None

    @property
    def nbytes(self) -> int:
        return self.draws.nbytes + (0 if self.images is None else self.images.nbytes)


class DrawCache:
    """The draws of one posterior on one device, with those of recent seeds in memory.

    Not thread-safe, but for `missing`.

    Attributes:
        means: The mu-only networks, see `model.engines.draws.mean_network`.
        most_seeds: Largest number of seeds.
        most_bytes: Largest number of bytes; one block of draws may exceed it.
        bytes_per_draw: Memory of one draw.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        architecture: Architecture,
        device: torch.device,
        *,
        most_seeds: int = KEPT_SEEDS,
        most_bytes: int = KEPT_BYTES,
        compiled: Callable[..., None] | None = None,
    ) -> None:
        """Prepare an empty cache.

        Args:
            tensors: mu and rho by the names of `model.networks.bayesian_network.Architecture.shapes`, on the CPU.
            architecture: The network's sizes.
            device: The device of the draws.
            most_seeds: See the class.
            most_bytes: See the class.
            compiled: Makes the draws, see `model.engines.draw_maker.DrawMaker`.
        """
        self.means = mean_network(tensors, architecture, device)
        self.most_seeds, self.most_bytes = most_seeds, most_bytes
        self.bytes_per_draw = self.means.nbytes // len(self.means)
        self._maker = DrawMaker(tensors, architecture, device, compiled)
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def __len__(self) -> int:
        """Number of seeds in the cache."""
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        """Memory of the cache on the device, in bytes."""
        return sum(kept.nbytes for kept in self._kept.values())

    def holds(self, samples: int) -> bool:
        """Whether S draws fit into the cache."""
        return samples * self.bytes_per_draw <= self.most_bytes

    def missing(self, samples: int, seed: int) -> int:
        """How many draws `parts` would make; any thread may ask.

        Draws that do not fit into the cache are made again for every tile of rows; they are counted once.
        """
        kept = self._kept.get(seed)  # one operation of a dictionary, which no other thread can interrupt
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
        blocks = self.most_bytes // (BLOCK * self.bytes_per_draw)
        kept = min(samples, BLOCK * max(0, blocks - 1))
        if kept:
            yield self.first(kept, seed)
        for start in range(kept, samples, BLOCK):
            yield self._make(min(BLOCK, samples - start), seed, start)

    def image_parts(self, samples: int, seed: int) -> Iterator[Draws]:
        """The mirror images of `parts`, by `model.engines.draws.mirrored`; takes the arguments of `parts`."""
        if 2 * samples * self.bytes_per_draw <= self.most_bytes:
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
            self._make_room()
        return images.first(samples)

    def _of(self, samples: int, seed: int) -> _Kept:
        """The entry of a seed with at least S draws, which becomes the most recent entry."""
        kept = self._kept.get(seed)
        if kept is None or len(kept.draws) < samples:
            kept = self._kept[seed] = _Kept(self._make(samples, seed))
            self._kept.move_to_end(seed)
            self._make_room()
        self._kept.move_to_end(seed)
        return kept

    def _make(self, samples: int, seed: int, start: int = 0) -> Draws:
        return self._maker.make(seed, samples, start)

    def _make_room(self) -> None:
        """Remove the least recently used seeds, then the mirror images of the latest one; its draws stay."""
        while len(self._kept) > 1 and (len(self) > self.most_seeds or self.nbytes > self.most_bytes):
            self._kept.popitem(last=False)
        if self.nbytes > self.most_bytes:
            (latest,) = self._kept.values()
            latest.images = None
