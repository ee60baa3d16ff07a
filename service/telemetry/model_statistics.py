"""What each served version has done so far: requests, rows and seconds, and the batches in which they were computed.

`/metrics` has distributions, for a system that collects them. These are plain sums, for whoever asks about one model.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from murho.service.engine.jobs import ModelLike, Timing

__all__ = ["ModelStatistics", "Sum", "Totals"]


@dataclass(slots=True)
class Sum:
    """A number of events, and the seconds that they took together."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Adds one event."""
        self.count += 1
        self.seconds += seconds


@dataclass(slots=True)
class Totals:
    """What one version has done.

    Attributes:
        rows: Rows answered.
        last: When the last request was answered, in seconds since 1970-01-01 UTC; 0.0: none was.
        success: Requests that were answered, from their arrival to their answer.
        fail: Requests for this version that were refused or failed.
        queue: Answered requests, in the queue.
        compute: Answered requests, in computation; requests that share a batch have its time each.
        batches: Passes of the engine, by their size: the smallest power of two that is not below their rows.
    """

    rows: int = 0
    last: float = 0.0
    success: Sum = field(default_factory=Sum)
    fail: Sum = field(default_factory=Sum)
    queue: Sum = field(default_factory=Sum)
    compute: Sum = field(default_factory=Sum)
    batches: dict[int, Sum] = field(default_factory=lambda: defaultdict(Sum))


class ModelStatistics:
    """The totals of each version. The compute thread and the event loop add to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[tuple[str, str], Totals] = {}

    def of(self, model: ModelLike) -> Totals:
        """Returns the totals of a version; they go on."""
        key = model.name, model.version
        totals = self._totals.get(key)
        if totals is None:
            with self._lock:
                totals = self._totals.setdefault(key, Totals())
        return totals

    def answered(self, model: ModelLike, rows: int, timing: Timing, seconds: float) -> None:
        """Counts a request that was answered."""
        totals = self.of(model)
        totals.rows += rows
        totals.last = time.time()
        totals.success.add(seconds)
        totals.queue.add(timing.queue)
        totals.compute.add(timing.compute)

    def failed(self, model: ModelLike, seconds: float) -> None:
        """Counts a request that was refused or failed."""
        self.of(model).fail.add(seconds)

    def count_pass(self, model: ModelLike, rows: int, seconds: float) -> None:
        """Counts one pass of the engine."""
        self.of(model).batches[1 << (rows - 1).bit_length()].add(seconds)

    def keep(self, served: set[tuple[str, str]]) -> None:
        """Forgets the versions that are no longer served."""
        with self._lock:
            self._totals = {key: totals for key, totals in self._totals.items() if key in served}
