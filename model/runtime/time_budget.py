"""A clock for time budgets that counts processor time, so that a busy machine does not cut a search short."""

from __future__ import annotations

import time

__all__ = ["TimeBudget"]


class TimeBudget:
    """Seconds spent since construction: processor time of the constructing thread, or wall time.

    By wall time alone, a search would stop early on a busy machine: its parameters would be worse, and differ from run
    to run. By processor time, the search does the same work on a busy machine and only finishes later.
    """

    def __init__(self, before: float = 0.0, *, patience: float = 1.0) -> None:
        """Start the clock.

        Args:
            before: Seconds already spent.
            patience: Wall time divided by this number counts where it exceeds the processor time. 1 means wall time.
        """
        self._before, self._patience = before, patience
        self._wall, self._thread = time.monotonic(), time.thread_time()

    def spent(self) -> float:
        """Return the seconds spent so far. Call it from the constructing thread."""
        wall, thread = time.monotonic() - self._wall, time.thread_time() - self._thread
        return self._before + max(thread, wall / self._patience)
