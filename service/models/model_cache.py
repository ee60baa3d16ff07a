"""The models in memory, where not all of them fit: a bounded cache with the least recently used leaving first.

A version that is asked for is loaded by one of `LOADS_AT_ONCE` threads, once for all who ask; other loads wait for
their turn. It stays until the bound needs its place and no request uses it. A request has the model itself, so it ends
on that one, whatever leaves the cache meanwhile. Nothing here belongs to an event loop; all methods may be called from
any thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import structlog

from murho.service.errors import NotReadyError
from murho.service.models.on_demand import ListedVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from murho.model.checkpoint.checkpoint import CheckpointReference
    from murho.service.engine.jobs import ModelLike

__all__ = ["LOADS_AT_ONCE", "Held", "Load", "ModelCache", "Noticed"]

LOADS_AT_ONCE = 2
"""Threads that load. They share the interpreter with the requests, so more of them would make answers slow."""
FIRST_SECONDS = 0.1
"""What a load takes, before one was measured."""

Noticed: TypeAlias = Literal["loaded", "failed", "evicted"]


@dataclass(slots=True, eq=False)
class Held:
    """A version in memory.

    Attributes:
        model: The version.
        since: When it was loaded, UTC.
        cache: The cache.
        users: Requests that use it.
    """

    model: ModelLike
    since: datetime
    cache: ModelCache
    users: int = 0

    def release(self) -> None:
        """Ends a use."""
        self.cache.release(self)


@dataclass(slots=True, eq=False)
class Load:
    """A version that is being loaded, or waits for it.

    Attributes:
        version: The version.
        future: Gets what is held then, in use by all who waited; or a `LoadingError`.
        waiting: How many wait for it.
        kept: Whether it is still served, so that it is held.
    """

    version: ListedVersion
    future: Future[Held] = field(default_factory=Future)
    waiting: int = 0
    kept: bool = True


class ModelCache:
    """Versions in memory, at most as many as the bound says and those in use beyond it.

    Args:
        load: Loads a version; raises a `LoadingError`.
        most: The bound, at least 1; versions that are being loaded count.
        noticed: Called with what happened, and the seconds of a load.
    """

    def __init__(
        self,
        load: Callable[[CheckpointReference], ModelLike],
        most: int,
        noticed: Callable[[Noticed, float], None] = lambda _what, _seconds: None,
    ) -> None:
        self._load, self._most, self._noticed = load, most, noticed
        self._lock = threading.Lock()
        self._held: OrderedDict[ListedVersion, Held] = OrderedDict()  # the least recently used comes first
        self._loads: dict[ListedVersion, Load] = {}
        self._running = 0
        self._seconds = FIRST_SECONDS
        self._turns: queue.SimpleQueue[Load | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closing = False

    def __len__(self) -> int:
        return len(self._held)

    @property
    def loads(self) -> int:
        """Versions that are being loaded, or wait for it."""
        return len(self._loads)

    @property
    def seconds_left(self) -> float:
        """About how long these loads take, in seconds."""
        return len(self._loads) * self._seconds / LOADS_AT_ONCE

    def listed(self, reference: CheckpointReference) -> ListedVersion:
        """Returns what the snapshot has of a version; loads it at once if that can't wait.

        The very first version is loaded, because it compiles what all others use. So is one that replaces a version in
        memory: it is checked and warm before it takes over.

        Raises:
            LoadingError: It can't be loaded.
        """
        version = ListedVersion(reference, self)
        with self._lock:
            names = [each for each in self._held if each.name == version.name]
            first = not self._held and not self._loads
        if first or any(int(each.version) <= int(version.version) for each in names):
            self.hold(version)
        return version

    def peek(self, version: ListedVersion) -> Held | None:
        """Returns a version if it is in memory; that does not count as a use."""
        return self._held.get(version)

    def use(self, version: ListedVersion) -> Held | None:
        """Returns a version if it is in memory; it is in use until `release`."""
        with self._lock:
            held = self._held.get(version)
            if held is not None:
                self._held.move_to_end(version)
                held.users += 1
            return held

    def ask(self, version: ListedVersion) -> Load:
        """Has a version loaded. What its future gets is in use until `release`; who does not wait for it, `give_up`s.

        Raises:
            NotReadyError: The service stops.
        """
        with self._lock:
            if self._closing:
                raise NotReadyError("The service is shutting down.", retry_after=5)
            load = self._loads.get(version)
            if load is None:
                load = self._loads[version] = Load(version)
                self._turns.put(load)
                if len(self._threads) < LOADS_AT_ONCE:
                    name = f"loading-{len(self._threads)}"
                    self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                    self._threads[-1].start()
            load.waiting += 1
            return load

    def hold(self, version: ListedVersion) -> None:
        """Loads a version in the calling thread, unless it is in memory, and waits for it.

        Raises:
            LoadingError: It can't be loaded.
        """
        with self._lock:
            if version in self._held:
                self._held.move_to_end(version)
                return
            load = self._loads.get(version)
            mine = load is None
            if load is None:
                load = self._loads[version] = Load(version)
            load.waiting += 1
        if mine:
            self._run(load, sparing=version.name)  # what it may replace serves on if it is bad
        self.release(load.future.result())

    def give_up(self, load: Load) -> None:
        """Ends a wait. A load that nobody waits for is not begun."""
        with self._lock:
            over = load.future.done()
            if not over:
                load.waiting -= 1
                if load.waiting == 0 and load.future.cancel():
                    del self._loads[load.version]
        if over and load.future.exception() is None:
            self.release(load.future.result())

    def release(self, held: Held) -> None:
        """Ends a use."""
        with self._lock:
            held.users -= 1
            dropped = self._make_room()
        del dropped  # not under the lock: it may take a while

    def keep(self, served: Collection[ListedVersion]) -> None:
        """Lets go of the versions that are no longer served."""
        with self._lock:
            dropped = [self._held.pop(version) for version in list(self._held) if version not in served]
            for load in self._loads.values():
                load.kept = load.version in served
        del dropped

    def close(self, timeout: float | None = None) -> bool:
        """Ends the threads; who still waits is told that the service stops.

        Returns:
            Whether they have ended.
        """
        with self._lock:
            self._closing = True
        for _ in self._threads:
            self._turns.put(None)
        end = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        from murho.model.runtime import use_threads

        use_threads(1)  # the other processors answer requests meanwhile
        while self._once():
            pass

    def _once(self) -> bool:
        """Takes one load; returns whether there may be more. No local variable outlives it, and so no model does."""
        load = self._turns.get()
        if load is not None:
            self._run(load)
        return load is not None

    def _run(self, load: Load, sparing: str = "") -> None:
        """Loads a version, and tells all who wait for it; no version of the spared name makes room for it."""
        if not load.future.set_running_or_notify_cancel():
            return
        begin = time.monotonic()
        with self._lock:
            self._running += 1
            dropped = self._make_room(sparing)  # first, so that the bound holds meanwhile
        del dropped
        try:
            if self._closing:
                raise NotReadyError("The service is shutting down.", retry_after=5)  # noqa: TRY301 - told like any other
            held = Held(self._load(load.version.reference), datetime.now(UTC), self)
        except BaseException as error:  # whoever waits gets it, and the thread goes on
            with self._lock:
                self._end(load)
                load.future.set_exception(error)
            self._noticed("failed", time.monotonic() - begin)
            return
        seconds = time.monotonic() - begin
        with self._lock:
            self._end(load)
            self._seconds += 0.2 * (seconds - self._seconds)
            held.users = load.waiting
            if load.kept:
                self._held[load.version] = held
            load.future.set_result(held)
        name, number = load.version.name, load.version.version
        structlog.get_logger("murho.registry").debug("checkpoint loaded", model=name, version=number, seconds=seconds)
        self._noticed("loaded", seconds)

    def _end(self, load: Load) -> None:
        self._running -= 1
        del self._loads[load.version]

    def _make_room(self, sparing: str = "") -> list[Held]:
        """Takes versions out until the bound holds, or all others are in use; the caller lets go of them."""
        surplus = len(self._held) + self._running - self._most
        if surplus <= 0:
            return []
        idle = [version for version, held in self._held.items() if not held.users and version.name != sparing]
        for _ in idle[:surplus]:
            self._noticed("evicted", 0.0)
        return [self._held.pop(version) for version in idle[:surplus]]
