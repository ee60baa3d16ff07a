"""Threads for the large work of requests: decoding bodies, encoding answers, totals.

The event loop answers everybody, so nothing in it may take more than some milliseconds. A thread alone doesn't help
with work that holds the interpreter's lock, so the codecs do large work in pieces, and few threads do it: each one that
wants the lock is one more for the event loop to wait for. The requests of each caller for each route take turns there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

ResultT = TypeVar("ResultT")

THREADS = 2


class CodecThreads:
    """Threads that do the large work of requests, in turn for each flow."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="codec")
        self._lock = Lock()
        self._waiting: dict[Hashable, deque[tuple[Future[Any], Callable[[], Any]]]] = {}

    def submit(self, flow: Hashable, work: Callable[[], ResultT]) -> asyncio.Future[ResultT]:
        """Have large work done in a thread, so that other requests go on meanwhile.

        Args:
            flow: Flows take turns; the work of one flow is done in the order in which it comes.
            work: The work. Once the future is cancelled it is dropped, unless it has begun.
        """
        future: Future[ResultT] = Future()
        with self._lock:
            self._waiting.setdefault(flow, deque()).append((future, work))
        self._threads.submit(self._run)
        return asyncio.wrap_future(future)

    def _run(self) -> None:
        """Do the work whose turn it is."""
        with self._lock:
            flow = next(iter(self._waiting))
            line = self._waiting.pop(flow)
            future, work = line.popleft()
            if line:
                self._waiting[flow] = line  # behind all others
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:  # the thread outlives any work; who waits for it gets the error
                future.set_exception(error)

    def close(self) -> None:
        """End the threads once they have done what they do."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for line in self._waiting.values():
            for future, _ in line:
                future.cancel()
