"""A limit of log lines, so that a flood of events does not become a flood of lines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LogLimit"]


class LogLimit:
    """Lets a number of lines through in each period, and counts those that it holds back.

    Args:
        lines: The most lines of one period.
        seconds: The length of a period, which begins with its first line.
        clock: Monotonic seconds.
    """

    def __init__(self, lines: int, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = lines
        self._seconds = seconds
        self._clock = clock
        self._end = -float("inf")
        self._said = 0
        self._held_back = 0

    def held_back(self) -> int | None:
        """Asks for one line; returns None if it is to be held back, else how many were before it."""
        now = self._clock()
        if now >= self._end:
            self._end = now + self._seconds
            self._said = 0
        if self._said >= self._lines:
            self._held_back += 1
            return None
        self._said += 1
        held_back, self._held_back = self._held_back, 0
        return held_back
