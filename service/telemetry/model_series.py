"""Which versions have series of their own in `/metrics`: a bounded number of those that were asked; the rest share one.

A scrape stays small however many models are served, and sums over all series stay right: what has no series of its own
counts under `OTHERS`.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["IDLE_SECONDS", "OTHERS", "ModelSeries"]

OTHERS = ("(others)", "")
"""Labels `model` and `version` of the shared series; no checkpoint can be called that."""
IDLE_SECONDS = 3600.0
"""A version that was not asked for so long gives its place to another one. Its counters stood still, so no rate that a
query takes over a shorter time loses anything."""

Series = TypeVar("Series")


@dataclass(slots=True)
class _Place(Generic[Series]):
    series: Series
    used: float


class ModelSeries(Generic[Series]):
    """Gives places to versions as they are asked. All methods may be called from any thread.

    Args:
        most: The number of places.
        make: Makes the series of a name and a version.
        remove: Takes the series of a name and a version out of the registry; the flag says whether another version of
            the name still has a place.
        clock: Seconds.
    """

    def __init__(
        self,
        most: int,
        make: Callable[[str, str], Series],
        remove: Callable[[str, str, bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._make, self._remove, self._clock = most, make, remove, clock
        self._lock = threading.Lock()
        self._places: OrderedDict[tuple[str, str], _Place[Series]] = OrderedDict()  # the one idle longest comes first
        self._others: Series | None = None

    def of(self, name: str, version: str) -> Series:
        """Returns the series under which a request to a version counts."""
        key, now = (name, version), self._clock()
        with self._lock:
            place = self._places.get(key)
            if place is not None:
                place.used = now
                self._places.move_to_end(key)
                return place.series
            if len(self._places) < self._most or self._make_room(now):
                place = self._places[key] = _Place(self._make(name, version), now)
                return place.series
            if self._others is None:
                self._others = self._make(*OTHERS)
            return self._others

    def places(self) -> list[tuple[str, str]]:
        """Returns name and version of those with series of their own."""
        with self._lock:
            return list(self._places)

    def _make_room(self, now: float) -> bool:
        """Takes the place of the version that is idle longest, if it is so for long enough."""
        if not self._places or now - next(iter(self._places.values())).used < IDLE_SECONDS:
            return False
        (name, version), _ = self._places.popitem(last=False)
        self._remove(name, version, any(other == name for other, _ in self._places))
        return True
