"""The draws of a posterior: made when a request asks for them, and kept for the next one.

To make S draws takes longer than to answer a few rows by them. Draw k of a seed is the same whatever S (see
`model.engines.draws`), so what is kept of a seed answers for every smaller S. Where S draws are more than may be kept,
the first of them are, and the others are made anew, a block at a time, whenever they are needed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murho.model.engines.coupled_normals import BLOCK
from murho.model.engines.draws import make_draws, mean_network, mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch
    from torch import Tensor

    from murho.model.engines.draws import Draws
    from murho.model.networks.bayesian_network import Architecture

__all__ = ["KEPT_BYTES", "KEPT_SEEDS", "KeptDraws"]

KEPT_SEEDS = 4
KEPT_BYTES = 2**30
"""Draws of recent seeds that are kept: at most so many seeds and so many bytes in all.

256 draws of three layers of 512 are half of it. Made anew for a row they take 4 s, kept 50 ms."""


@dataclass(slots=True)
class _Kept:
    """What is kept of a seed: draws and, once somebody has asked for them, mirror images of the first of them."""

    draws: Draws
    images: Draws | None = None

    @property
    def nbytes(self) -> int:
        return self.draws.nbytes + (0 if self.images is None else self.images.nbytes)


class KeptDraws:
    """The draws of one posterior on one device, those of recent seeds at hand.

    Not thread-safe.

    Attributes:
        means: The mu-only networks, see `model.engines.draws.mean_network`.
        most_seeds: So many seeds are kept.
        most_bytes: So many bytes; at least a block of draws.
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
    ) -> None:
        """Makes no draws yet.

        Args:
            tensors: mu and rho by the names of `model.networks.bayesian_network.Architecture.shapes`, on the CPU.
            architecture: The network's sizes.
            device: Where the draws are to be used.
            most_seeds: See the class.
            most_bytes: See the class.
        """
        self.means = mean_network(tensors, architecture, device)
        self.most_seeds, self.most_bytes = most_seeds, most_bytes
        self.bytes_per_draw = self.means.nbytes // len(self.means)
        self._tensors, self._architecture, self._device = tensors, architecture, device
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def __len__(self) -> int:
        """How many seeds are kept."""
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        """Memory of all that is kept, on the device."""
        return sum(kept.nbytes for kept in self._kept.values())

    def holds(self, samples: int) -> bool:
        """Whether S draws may be kept all at once."""
        return samples * self.bytes_per_draw <= self.most_bytes

    def parts(self, samples: int, seed: int) -> Iterator[Draws]:
        """The first draws of a seed, one part after the other, in no more memory than allowed.

        Args:
            samples: S, at least 1.
            seed: Seed of the draws.
        """
        if self.holds(samples):
            yield self.first(samples, seed)
            return
        # Room for one block beside those that are kept.
        blocks = self.most_bytes // (BLOCK * self.bytes_per_draw)
        kept = min(samples, BLOCK * max(0, blocks - 1))
        if kept:
            yield self.first(kept, seed)
        for start in range(kept, samples, BLOCK):
            yield self._make(min(BLOCK, samples - start), seed, start)

    def image_parts(self, samples: int, seed: int) -> Iterator[Draws]:
        """The mirror images of `parts`, see `model.engines.draws.mirrored`; arguments as of `parts`."""
        if 2 * samples * self.bytes_per_draw <= self.most_bytes:
            yield self.images(samples, seed)
            return
        for part in self.parts(samples, seed):
            for start in range(0, len(part), BLOCK):
                yield mirrored(part.some(slice(start, start + BLOCK)), self.means)

    def first(self, samples: int, seed: int) -> Draws:
        """The first draws of a seed.

        Args:
            samples: S, at least 1.
            seed: Seed of the draws.
        """
        return self._of(samples, seed).draws.first(samples)

    def images(self, samples: int, seed: int) -> Draws:
        """The mirror images of the first draws of a seed, see `draws.mirrored`; arguments as of `first`."""
        kept = self._of(samples, seed)
        images = kept.images
        if images is None or len(images) < samples:
            images = kept.images = mirrored(kept.draws.first(samples), self.means)
            self._make_room()
        return images.first(samples)

    def _of(self, samples: int, seed: int) -> _Kept:
        """What is kept of a seed, enough of it, as the latest."""
        kept = self._kept.get(seed)
        if kept is None or len(kept.draws) < samples:
            kept = self._kept[seed] = _Kept(self._make(samples, seed))
            self._kept.move_to_end(seed)
            self._make_room()
        self._kept.move_to_end(seed)
        return kept

    def _make(self, samples: int, seed: int, start: int = 0) -> Draws:
        return make_draws(
            self._tensors, self._architecture, seed=seed, samples=samples, start=start, device=self._device
        )

    def _make_room(self) -> None:
        """Lets go of the seeds not asked for the longest, then of the latest one's images; never of its draws."""
        while len(self._kept) > 1 and (len(self) > self.most_seeds or self.nbytes > self.most_bytes):
            self._kept.popitem(last=False)
        if self.nbytes > self.most_bytes:
            (latest,) = self._kept.values()
            latest.images = None
