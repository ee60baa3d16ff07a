"""How long something has worked: what a budget of time counts."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """Seconds since it was made, by the processor time of the thread that made it or by the wall.

    A search that hurries because other programs had the processor keeps worse parameters, and other ones the next
    time. By processor time it does the same work on a busy machine as on a quiet one, only later.
    """

    def __init__(self, before: float = 0.0, *, patience: float = 1.0) -> None:
        """Starts.

        Args:
            before: Seconds already counted.
            patience: How many times longer than the processor's the wall's seconds may become before these count
                instead; 1: the wall's count always.
        """
        self._before, self._patience = before, patience
        self._wall, self._thread = time.monotonic(), time.thread_time()

    def seconds(self) -> float:
        """Counted so far; asked from the thread that made it."""
        wall, thread = time.monotonic() - self._wall, time.thread_time() - self._thread
        return self._before + max(thread, wall / self._patience)
