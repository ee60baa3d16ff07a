"""The requests that wait for an answer: one timer for the deadlines of all, and a watch over clients of slow ones.

A request that is answered within `WATCH_SECONDS` costs neither a timer nor a task of its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from murho.service.errors import ClientGoneError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from typing import Any

    from murho.service.engine.jobs import Answer, Job
    from murho.service.engine.scheduler import Scheduler

__all__ = ["Receive", "Waiting"]

Receive: TypeAlias = "Callable[[], Awaitable[MutableMapping[str, Any]]]"
"""The next message of the client, as in an ASGI application."""

WATCH_SECONDS = 0.05
"""How often the timer looks, and how long a request may take before its client is watched."""


class Waiting:
    """The jobs of one event loop that have no answer so far.

    Args:
        scheduler: Where the jobs are; it is told of those that nobody waits for.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._jobs: dict[Job, Receive | None] = {}
        self._watches: dict[Job, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def answer(self, job: Job, receive: Receive | None = None) -> Answer:
        """Waits for the answer of an admitted job.

        Args:
            job: The job.
            receive: Tells whether the client is gone, as an ASGI application's `receive` does once the body is read;
                None: nobody can go.

        Raises:
            DeadlineError: The deadline came first.
            ClientGoneError: The client closed the connection.
        """
        self._jobs[job] = receive
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)
        try:
            return await job.future
        finally:
            del self._jobs[job]
            if not job.over:  # no answer was computed: the caller was cancelled, or one of the two errors came first
                self._scheduler.forget(job)
            if (watch := self._watches.pop(job, None)) is not None:
                watch.cancel()

    def _look(self) -> None:
        """Ends the wait of jobs whose deadline has passed, and begins to watch the clients of slow jobs."""
        self._timer = None
        now = self._scheduler.clock()
        for job, receive in self._jobs.items():
            if job.future.done():
                continue
            if now >= job.deadline:
                job.future.set_exception(self._scheduler.too_late(job))
            elif receive is not None and job not in self._watches and now - job.submitted >= WATCH_SECONDS:
                self._watches[job] = asyncio.ensure_future(_watch(job, receive))
        if self._jobs:
            self._timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)


async def _watch(job: Job, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    if not job.future.done():
        job.future.set_exception(ClientGoneError("The client closed the connection before the answer."))
