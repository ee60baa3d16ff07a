"""The thread that looks for checkpoints every second or so, and loads beside the thread that computes.

It polls, because network file systems and the volumes of containers give no events.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, Self

import structlog

from murho.service.errors import NotReadyError
from murho.service.models.loader import Change, Loader, Outcome, Registry, Swap
from murho.service.settings import VersionPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.service.models.source import CheckpointSource
    from murho.service.settings import Settings

LOOK = Change(patient=True)
"""What is done every few seconds."""
DIRECTORY_SECONDS, STORAGE_SECONDS = 1.0, 10.0
"""Between two looks where the setting does not say: a look at a storage is a request that is paid for."""


class Versions(Protocol):
    """Whoever changes what is served."""

    async def apply(self, change: Change) -> Swap:
        """Make a change as by `Loader.apply`, and return once it is served."""


class Watcher:
    """Runs a loader in a thread of its own: every few seconds, and when asked to.

    Args:
        loader: Loads, and swaps the snapshot.
        registry: Has the snapshot.
        seconds: Time between two looks; 0: it looks only when asked to.
        changed: Called with the snapshots before and after every change, in the thread that made it.
    """

    def __init__(
        self, loader: Loader, registry: Registry, seconds: float, changed: Callable[[Swap], None] = lambda _: None
    ) -> None:
        self._loader, self._registry, self._seconds, self._changed = loader, registry, seconds, changed
        self._tasks: queue.SimpleQueue[tuple[Change, Future[Swap]] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._log = structlog.get_logger("murho.watcher")

    @classmethod
    def of(
        cls,
        settings: Settings,
        source: CheckpointSource,
        registry: Registry,
        count: Callable[[Outcome], None],
        *,
        stopping: Callable[[], bool],
        changed: Callable[[Swap], None],
    ) -> Self:
        """Return the watcher of a service.

        Args:
            settings: Of the service.
            source: Where checkpoints come from.
            registry: Gets the snapshots.
            count: Called with what happened to each version.
            stopping: Whether the service stops, so that nothing more is loaded.
            changed: See the class.
        """
        policy = VersionPolicy.of(settings.versions, settings.pinned)
        loader = Loader(source, registry, policy, count=count, seconds=settings.load_timeout, stopping=stopping)
        usual = STORAGE_SECONDS if isinstance(settings.checkpoints, str) else DIRECTORY_SECONDS
        return cls(loader, registry, usual if settings.watch_seconds is None else settings.watch_seconds, changed)

    def load_first(self) -> None:
        """Load for the first time, in the calling thread; `start` comes after it."""
        self._noticing(self._loader.refresh)

    def start(self) -> None:
        """Start the thread."""
        if not self._closing.is_set():
            self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
            self._thread.start()

    def close(self, timeout: float | None = None) -> bool:
        """End the thread; what is asked from now on is refused.

        Returns:
            Whether the thread has ended.
        """
        self._closing.set()
        self._tasks.put(None)
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def ask(self, change: Change) -> Future[Swap]:
        """Have a change made as by `Loader.apply`, at once; the future has its result once it is served."""
        answer: Future[Swap] = Future()
        if self._closing.is_set():
            answer.set_exception(_stopping())
        else:
            self._tasks.put((change, answer))
        return answer

    async def apply(self, change: Change) -> Swap:
        """Make a change as by `Loader.apply`, and return once it is served."""
        return await asyncio.wrap_future(self.ask(change))

    def _run(self) -> None:
        try:
            from murho.model.runtime import use_threads

            use_threads(1)  # loading is not in a hurry, and the other processors answer requests meanwhile
        except ImportError:
            self._log.exception("loading will fail")
        while not self._closing.is_set():
            self._once()
        while not self._tasks.empty():
            if (task := self._tasks.get()) is not None:
                task[1].set_exception(_stopping())

    def _once(self) -> None:
        """Wait for a task or the next look, and does it. No local variable outlives it, and so no old model does."""
        try:
            task = self._tasks.get(timeout=self._seconds or None)
        except queue.Empty:
            task = LOOK, Future()
        if task is None or not task[1].set_running_or_notify_cancel():
            return
        change, answer = task
        try:
            answer.set_result(self._noticing(lambda: self._loader.apply(change)))
        except Exception as error:  # whoever asked gets it; the thread must keep running
            answer.set_exception(error)
            if change is LOOK:
                self._log.exception("looking for new versions failed")

    def _noticing(self, work: Callable[[], object]) -> Swap:
        before = self._registry.snapshot
        try:
            work()
        finally:
            swap = Swap(before, self._registry.snapshot)
            if swap.after != before:
                try:
                    self._changed(swap)
                except Exception:  # what was loaded is served all the same
                    self._log.exception("telling what changed failed")
        return swap


def _stopping() -> NotReadyError:
    return NotReadyError("The service is shutting down.")
