"""Memory for draws, which several posteriors may share; without PyTorch, for settings that need its size alone."""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import count
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

KEPT_BYTES = 2**30
"""Of all draws. 256 draws of three layers of 512 units take half of it. A row takes 50 ms with them, 4 s without."""
KEPT_SEEDS = 512
"""Of all posteriors: draws of few weights take more memory than their bytes, some KiB for each seed."""


class HasBytes(Protocol):
    """What takes memory."""

    @property
    def nbytes(self) -> int:
        """Bytes of it."""


Kept = TypeVar("Kept", bound=HasBytes, default=Any)


class DrawCache(Generic[Kept]):
    """Draws of one or more posteriors by owner and seed: those not used the longest leave first. Thread-safe.

    Attributes:
        most_bytes: Largest number of bytes, of at most `KEPT_SEEDS` entries; the latest draws may exceed it.
        owners: Numbers the posteriors.
        gone: Numbers of those that are no more: their draws leave first.
    """

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self.most_bytes, self.owners = most_bytes, count()
        self.gone: list[int] = []
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], Kept] = OrderedDict()

    def find(self, owner: int, seed: int) -> Kept | None:
        """Return the draws of a seed, which from now on are those used last; None: there are none."""
        with self._lock:
            draws = self._kept.get((owner, seed))
            if draws is not None:
                self._kept.move_to_end((owner, seed))
            return draws

    def keep(self, owner: int, seed: int, draws: Kept) -> None:
        """Keep draws, in place of those of the same seed."""
        with self._lock:
            self._kept[owner, seed] = draws
            self._kept.move_to_end((owner, seed))
        self.shrink()

    def shrink(self, most_bytes: int | None = None) -> None:
        """Drop the draws not used the longest; the latest stay.

        Args:
            most_bytes: Another limit than that of the class.
        """
        most = self.most_bytes if most_bytes is None else most_bytes
        with self._lock:
            for key in [key for key in self._kept if key[0] in self.gone]:
                del self._kept[key]
            left = sum(draws.nbytes for draws in self._kept.values())
            while (left > most or len(self._kept) > KEPT_SEEDS) and len(self._kept) > 1:
                left -= self._kept.popitem(last=False)[1].nbytes
