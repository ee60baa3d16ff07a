"""What the processes of one service tell one another in shared memory: that they live, and what is pending."""

from __future__ import annotations

import math
import mmap
import time
from typing import TYPE_CHECKING

from murho.service.engine.admission import Pending
from murho.service.errors import EngineSilentError

if TYPE_CHECKING:
    from collections.abc import Callable

AWAY_SECONDS = 5.0
"""A process that hasn't looked for so long was paused, and perhaps its whole machine."""
ENGINE = 0
"""Number of the engine among the processes; the front ends follow."""


class Board:
    """When each process last said that it lives, and for how long it has been silent; the queue; what is pending.

    Each number has one process that writes it.

    Args:
        front_ends: Their number.
        clock: Monotonic seconds, the same in all processes.
    """

    def __init__(self, front_ends: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._looked, self._since = clock, clock(), -math.inf
        self._count = 1 + front_ends
        lives, queue, pending = 2 * self._count, 2, 3 * front_ends
        memory = memoryview(mmap.mmap(-1, 8 * (lives + queue + pending))).cast("d")
        self._lives, self._queue = memory[:lives], memory[lives : lives + queue]
        self._pending = memory[lives + queue :]

    def beat(self, number: int, silent: float = 0.0) -> None:
        """Say that a process lives.

        Args:
            number: Of the process.
            silent: Seconds for which its computation has shown no life.
        """
        self._lives[2 * number], self._lives[2 * number + 1] = self._look(), silent

    def bury(self, number: int) -> None:
        """Forget a process that has ended: its silence is no fault, and nothing of it is pending."""
        self._lives[2 * number] = 0.0
        if number != ENGINE:
            self.pending(number).clear()

    def silence(self, number: int) -> float:
        """Return the seconds for which a process has shown no life; 0 where there is none.

        If this process hasn't looked for a while, all may have been paused: silence counts only since it runs again.
        """
        now = self._look()
        heard, silent = self._lives[2 * number], self._lives[2 * number + 1]
        return min(max(silent, now - heard), now - self._since) if heard else 0.0

    def _look(self) -> float:
        """Note that this process runs, at least once a second; return the time."""
        now = self._clock()
        if now - self._looked > AWAY_SECONDS:
            self._since = now
        self._looked = now
        return now

    def require_alive(self, most: float) -> None:
        """Check that no process is silent for too long.

        Raises:
            EngineSilentError: One is.
        """
        for number in range(self._count):
            if (silent := self.silence(number)) > most:
                who = "The engine" if number == ENGINE else f"Front end {number}"
                raise EngineSilentError(f"{who} has shown no sign of life for {silent:.0f} seconds.")

    def pending(self, number: int) -> Pending:
        """Return what is pending, as a front end counts it."""
        return Pending(self._pending, number - 1)

    def show_queue(self, standing: tuple[float, float]) -> None:
        """Show the engine's queue of small requests: the seconds of work in it, and since when it is not empty."""
        self._queue[0], self._queue[1] = standing

    @property
    def standing(self) -> tuple[float, float]:
        """What the engine has shown of its queue."""
        return self._queue[0], self._queue[1]
