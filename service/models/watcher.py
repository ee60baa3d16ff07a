"""The watcher: a thread that looks at the checkpoints every second or so, and loads beside the compute thread.

It polls, because network file systems and the volumes of containers give no events.
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from murho.service.errors import NotReadyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.service.models.loader import Loader
    from murho.service.models.on_demand import ListedVersion
    from murho.service.models.registry import LoadedModel, Registry, Snapshot

__all__ = ["Watcher"]

Result = TypeVar("Result")


class Watcher:
    """Runs a loader in a thread of its own: every few seconds, and when asked to.

    Args:
        loader: Loads, and swaps the snapshot.
        registry: Has the snapshot.
        seconds: Time between two looks; 0: it looks only when asked to.
        changed: Called with the snapshots before and after every change, in the thread that made it.
    """

    def __init__(
        self,
        loader: Loader,
        registry: Registry,
        seconds: float,
        changed: Callable[[Snapshot, Snapshot], None] = lambda _before, _after: None,
    ) -> None:
        self._loader, self._registry, self._seconds, self._changed = loader, registry, seconds, changed
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._log = structlog.get_logger("murho.watcher")

    def load_first(self, stopping: Callable[[], bool]) -> None:
        """Loads for the first time, in the calling thread; `start` comes after it."""
        self._noticing(lambda: self._loader.refresh(stopping=stopping))

    def start(self) -> None:
        """Starts the thread."""
        if not self._closing.is_set():
            self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
            self._thread.start()

    def close(self, timeout: float | None = None) -> bool:
        """Ends the thread; what is asked from now on is refused.

        Returns:
            Whether the thread has ended.
        """
        self._closing.set()
        self._tasks.put(None)
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def load(self, name: str, version: str | None = None) -> Future[LoadedModel]:
        """Has a name loaded as by `Loader.load`, at once."""
        return self._ask(lambda: self._loader.load(name, version))

    def unload(self, name: str) -> Future[tuple[str, ...]]:
        """Has a name taken out of service as by `Loader.unload`."""
        return self._ask(lambda: self._loader.unload(name))

    def refuse(self, version: ListedVersion, reason: str) -> Future[None]:
        """Has a version refused as by `Loader.refuse`."""
        return self._ask(lambda: self._loader.refuse(version, reason))

    def reload(self) -> Future[Snapshot]:
        """Has it look at once, and try refused versions again."""
        self._log.info("looking for new versions")
        return self._ask(lambda: self._loader.refresh(stopping=self._closing.is_set))

    def _ask(self, work: Callable[[], Result]) -> Future[Result]:
        answer: Future[Result] = Future()
        if self._closing.is_set():
            answer.set_exception(NotReadyError("The service is shutting down.", retry_after=5))
        else:
            self._tasks.put((work, answer))
        return answer

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
                task[1].set_exception(NotReadyError("The service is shutting down.", retry_after=5))

    def _once(self) -> None:
        """Waits for a task or the next look, and does it. No local variable outlives it, and so no old model does."""
        try:
            task = self._tasks.get(timeout=self._seconds or None)
        except queue.Empty:
            try:
                self._noticing(lambda: self._loader.refresh(retry=False, patient=True, stopping=self._closing.is_set))
            except Exception:  # the thread must keep running
                self._log.exception("looking for new versions failed")
            return
        if task is None:
            return
        work, answer = task
        try:
            result = self._noticing(work)
        except Exception as error:
            _settle(answer, error=error)
        else:
            _settle(answer, result=result)

    def _noticing(self, work: Callable[[], Result]) -> Result:
        before = self._registry.snapshot
        try:
            return work()
        finally:
            after = self._registry.snapshot
            if after != before:
                try:
                    self._changed(before, after)
                except Exception:  # what was loaded is served all the same
                    self._log.exception("telling what changed failed")


def _settle(answer: Future[Any], *, result: Any = None, error: Exception | None = None) -> None:
    with suppress(InvalidStateError):  # whoever asked has gone
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)
