"""A queue of small requests that does not empty: then it is kept short, so that what is answered is answered soon.

A queue that empties now and then is a burst: everything in it is wanted and will soon be done. One that has not been
empty for `STANDING_SECONDS` stands: more comes than can be computed, so a longer queue answers no more requests, but
answers each of them later (Nichols and Jacobson 2012, "Controlling queue delay"; Maurer 2015, "Fail at scale").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["STANDING_SECONDS", "StandingQueue"]

STANDING_SECONDS = 10.0
"""A queue stands if it has not been empty for this long."""


class StandingQueue:
    """How much work waits in the queue of small requests, and whether that queue stands. Not thread-safe.

    Attributes:
        seconds: Work that waits, by what work of its model took when it came.

    Args:
        most: Seconds of work that may wait in a queue that stands.
        clock: Monotonic seconds.
    """

    def __init__(self, most: float, clock: Callable[[], float]) -> None:
        self.most, self.seconds = most, 0.0
        self._clock = clock
        self._waiting: dict[Hashable, float] = {}
        self._since = 0.0

    def __len__(self) -> int:
        """The number of jobs that wait."""
        return len(self._waiting)

    def add(self, job: Hashable, seconds: float) -> None:
        """Counts a job that begins to wait."""
        if not self._waiting:
            self._since = self._clock()
        self._waiting[job] = seconds
        self.seconds += seconds

    def remove(self, job: Hashable) -> None:
        """Counts a job that waits no more; one that did not wait is fine, too."""
        self.seconds -= self._waiting.pop(job, 0.0)
        if not self._waiting:
            self.seconds = 0.0  # rounding errors end here

    @property
    def standing(self) -> float:
        """Seconds since the queue was empty."""
        return self._clock() - self._since if self._waiting else 0.0

    @property
    def too_long(self) -> bool:
        """Whether the queue stands and is longer than such a queue may be."""
        return self.seconds > self.most and self.standing >= STANDING_SECONDS
