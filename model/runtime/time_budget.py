"""The time that a budget counts as spent."""

from __future__ import annotations

import time

__all__ = ["TimeBudget"]


class TimeBudget:
    """Seconds since it was made: processor time of the thread that made it, or wall time.

    Wall time alone would cut a search short where other programs use the processor: its parameters would be worse, and
    not the same the next time. By processor time it does the same work on a busy machine, only later.
    """

    def __init__(self, before: float = 0.0, *, patience: float = 1.0) -> None:
        """Starts.

        Args:
            before: Seconds already counted.
            patience: Wall time over this number is counted where it is more than the processor time; 1: wall time.
        """
        self._before, self._patience = before, patience
        self._wall, self._thread = time.monotonic(), time.thread_time()

    def spent(self) -> float:
        """Seconds counted so far; to be called from the thread that made it."""
        wall, thread = time.monotonic() - self._wall, time.thread_time() - self._thread
        return self._before + max(thread, wall / self._patience)
