"""The memory for draws that the caches of several posteriors share. Apart, because it needs no torch."""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from murho.model.predictive.draws import DrawCache

__all__ = ["KEPT_BYTES", "DrawRoom"]

KEPT_BYTES = 2**30
"""Of all draws. 256 draws of three layers of 512 units take half of it. A row takes 50 ms with them, 4 s without."""


class DrawRoom:
    """Memory for the draws of one or more posteriors: those not used the longest leave first. Thread-safe.

    Attributes:
        most_bytes: Largest number of bytes; one block of draws may exceed it.
        lock: Held while seeds are added and removed.
        uses: Numbers the uses of seeds.

    Args:
        most_bytes: See above.
    """

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self.most_bytes = most_bytes
        self.lock = threading.Lock()
        self.uses = count()
        self._caches: WeakSet[DrawCache] = WeakSet()

    def add(self, cache: DrawCache) -> None:
        """Has a cache share the room, as long as it exists."""
        with self.lock:
            self._caches.add(cache)

    def make_room(self, most_bytes: int | None = None) -> None:
        """Remove the seeds not used the longest; the latest one stays.

        Args:
            most_bytes: Another limit than that of the class.
        """
        most = self.most_bytes if most_bytes is None else most_bytes
        with self.lock:
            found = [(kept, cache, seed) for cache in self._caches for seed, kept in cache.kept.items()]
            left = sum(kept.draws.nbytes for kept, _, _ in found)
            found.sort(key=lambda each: each[0].used)
            for kept, cache, seed in found[:-1]:
                if left <= most:
                    return
                del cache.kept[seed]
                left -= kept.draws.nbytes
