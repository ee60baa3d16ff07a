"""The cache of a posterior's draws: made for the first request of a seed, and kept for later ones.

Making S draws takes longer than answering a few rows with them. Draw k of a seed does not depend on S (see
`model.engines.draw_maker`), and so the draws in the cache serve every smaller S. If S draws exceed the memory limit,
the first ones are kept, and the others are made again, block by block, whenever they are needed. The caches of several
posteriors can share one limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from murho.model.engines.coupled_normals import BLOCK
from murho.model.engines.draw_maker import DrawMaker
from murho.model.engines.draw_room import DrawRoom
from murho.model.engines.draws import mean_network, mirrored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch
    from torch import Tensor

    from murho.model.engines.draws import Draws
    from murho.model.networks.bayesian_network import Architecture

__all__ = ["KEPT_SEEDS", "DrawCache", "Kept"]

KEPT_SEEDS = 64
"""Limit of the seeds of a posterior."""


@dataclass(slots=True)
class Kept:
    """The draws of a seed and, once requested, the mirror images of the first of them.

    Attributes:
        draws: The draws.
        images: Mirror images of the first of them.
        used: Number of the latest use, see `model.engines.draw_room.DrawRoom.uses`.
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
        means: The mu-only networks, see `model.engines.draws.mean_network`.
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
            tensors: mu and rho by the names of `model.networks.bayesian_network.Architecture.shapes`, on the CPU.
            architecture: The network's sizes.
            device: The device of the draws.
            most_seeds: See the class.
            room: Memory for the draws; None: a room of its own.
            compiled: Makes the draws, see `model.engines.draw_maker.DrawMaker`.
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
        """The mirror images of `parts`, by `model.engines.draws.mirrored`; takes the arguments of `parts`."""
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
