"""Freed memory goes back to the system, and that of most draws too while nothing is asked."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow

from murho.model.runtime import trim_heap

if TYPE_CHECKING:
    from murho.model.predictive.draw_cache import DrawCache

GROWTH_BYTES = 2**26
"""More memory than after the last time is given back; it takes about 10 ms."""
QUIET_LOOKS = 10
"""After so many looks without work, draws leave the memory."""
QUIET_SHARE = 16


class FreedMemory:
    """Gives freed memory back to the system.

    Args:
        draws: Draws that leave where nothing is asked; None: this process has none.
    """

    def __init__(self, draws: DrawCache | None = None) -> None:
        # Arrow's own allocator keeps what its threads have freed, and can't be asked for it from another thread.
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())
        self._draws, self._least, self._passes, self._quiet = draws, _resident(), -1, 0

    def look(self, passes: int, *, pending: bool = False) -> None:
        """Give back what there is; to be called once a second, in any one thread.

        Args:
            passes: How many passes were computed so far.
            pending: Whether work waits.
        """
        self._quiet = 0 if pending or passes != self._passes else self._quiet + 1
        self._passes = passes
        if self._quiet == QUIET_LOOKS:
            if self._draws is not None:
                self._draws.shrink(self._draws.most_bytes // QUIET_SHARE)
            gc.collect()  # failures of requests and their arrays hold one another
        if _resident() > self._least + GROWTH_BYTES or self._quiet == QUIET_LOOKS:
            trim_heap()
            self._least = _resident()
        self._least = min(self._least, _resident())


def _resident() -> int:
    """Return the bytes of this process in memory; 0 where that isn't known."""
    try:
        return 4096 * int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        return 0
