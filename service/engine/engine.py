"""The engine as requests see it: a job in, its answer out; and the engine that computes in this process.

`murho serve` has the engine in a process of its own (`service.engine_process`), because an event loop and a computation
that share one interpreter wait for one another's lock. Tests, Ray Serve and `create_app` have `LocalEngine`: the same
scheduler in a thread. Nor does the event loop compute there, not even a request that is alone: a hung engine would hang
`/healthz` and every deadline with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from murho.service.engine.admission import Admission
from murho.service.engine.scheduler import Pass, Scheduler, deadline_error
from murho.service.errors import ClientGoneError, EngineSilentError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence

    from murho.service.engine.jobs import Answer, Job, Outcome, Slice

WATCH_SECONDS = 0.05
"""How often the timer looks at those who wait, and how long a request may take before its client is watched."""
BLOCK_JOBS = 16
"""Jobs that are handed on at once. With more the engine waits while this process reads them: 32 connections get 0.9 of
the answers with 32. With 8 they get as many, and the engine takes 15 % longer for a row, in passes half as long."""
CLOSING_SECONDS = 0.01
"""How often the thread looks whether the last request has ended, once no more are admitted."""

Receive: TypeAlias = "Callable[[], Awaitable[MutableMapping[str, Any]]]"
"""The next message of the client, as in an ASGI application."""
OnPass: TypeAlias = "Callable[[str, str, int, int, float], None]"
"""Gets name and version of the model of a pass, its jobs, its rows and its seconds."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A job whose answer somebody waits for."""

    job: Job
    future: asyncio.Future[Answer]
    receive: Receive | None
    watch: asyncio.Task[None] | None = None


class Engine(ABC):
    """Answers jobs; the side of the event loop.

    Attributes:
        admission: What is pending, and whether there is room for more.
        clock: Monotonic seconds; deadlines are on this clock.
        passes: How many passes have brought answers.
    """

    def __init__(self, admission: Admission, clock: Callable[[], float]) -> None:
        self.admission, self.clock, self.passes = admission, clock, 0
        self._waiting: dict[Job, _Waiting] = {}
        self._arriving: list[Job] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _is_idle(self) -> bool:
        """Whether another process could compute at once what it is given, and has nothing of this one."""
        return False

    @abstractmethod
    def _submit(self, jobs: Sequence[Job]) -> None:
        """Hand jobs to the thread or process that computes."""

    @abstractmethod
    def _abandon(self, job: Job) -> None:
        """Say that nobody waits for a job any more."""

    @abstractmethod
    def require_alive(self, most: float) -> None:
        """Check that the engine isn't silent for too long. One that waits for work, or load, is never silent.

        Raises:
            EngineSilentError: It is, for more than `most` seconds.
        """

    async def answer(self, job: Job, receive: Receive | None = None) -> Answer:
        """Return the answer of a job whose work is admitted.

        Args:
            job: The job.
            receive: Tells whether the client is gone, as an ASGI application's `receive` does once the body is read;
                None: nobody can go.

        Raises:
            RowsNotFiniteError, ComputationError, NotReadyError: See `jobs.compute`.
            DeadlineError: The deadline came first.
            ClientGoneError: The client closed the connection.
        """
        loop = asyncio.get_running_loop()
        job.submitted = self.clock()
        waiting = self._waiting[job] = _Waiting(job, loop.create_future(), receive)
        if self._timer is None:
            self._timer = loop.call_later(WATCH_SECONDS, self._look)
        self._arriving.append(job)
        if self._is_idle or len(self._arriving) >= BLOCK_JOBS:
            self._submit_arriving()
        elif len(self._arriving) == 1:
            # All requests that have arrived by now are read first, so that they share a pass.
            loop.call_soon(self._submit_arriving)
        try:
            return (await waiting.future).own()
        finally:
            del self._waiting[job]
            if not job.over:  # the caller was cancelled, or one of the two errors came first
                job.over = True
                self._abandon(job)
            if waiting.watch is not None:
                waiting.watch.cancel()
            # The error of the future, or of the watch, has a traceback, which has this frame: without its end this
            # circle would stay until the next full collection of garbage, which holds up the loop for 0.1 s.
            waiting.watch = None
            del waiting

    def _submit_arriving(self) -> None:
        arriving, self._arriving = self._arriving, []
        if jobs := [job for job in arriving if not job.over]:
            try:
                self._submit(jobs)
            except Exception as error:  # those who wait get it
                self._settle([(job, error) for job in jobs])

    def _look(self) -> None:
        """End the wait of jobs whose deadline has passed, and begin to watch the clients of slow jobs."""
        self._timer = None
        now = self.clock()
        for waiting in self._waiting.values():
            job = waiting.job
            if waiting.future.done():
                continue
            if now >= job.deadline:
                waiting.future.set_exception(deadline_error(job))
            elif waiting.receive is not None and waiting.watch is None and now - job.submitted >= WATCH_SECONDS:
                waiting.watch = asyncio.ensure_future(_watch(waiting, waiting.receive))
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)

    def _settle(self, outcomes: Iterable[tuple[Job, Answer | BaseException]]) -> None:
        """Hand outcomes to those who wait for them."""
        for job, outcome in outcomes:
            job.over = True
            if (waiting := self._waiting.get(job)) is None or waiting.future.done():
                continue
            if isinstance(outcome, BaseException):
                waiting.future.set_exception(outcome)
            else:
                waiting.future.set_result(outcome)


async def _watch(waiting: _Waiting, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    if not waiting.future.done():
        waiting.future.set_exception(ClientGoneError("The client closed the connection before the answer."))


class LocalEngine(Engine):
    """An engine in a thread of this process.

    Args:
        compute: See `Scheduler`; called in the thread.
        max_pending: The most requests waiting or in computation.
        max_pending_cost: The most cost waiting or in computation.
        max_standing_wait: Seconds of short jobs that may wait in a queue that stands (`Admission`).
        clock: Monotonic seconds.
        on_pass: Called in the thread after each pass.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Slice]], Sequence[Outcome]],
        max_pending: int,
        max_pending_cost: float,
        *,
        max_standing_wait: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
        on_pass: OnPass = lambda *_: None,
    ) -> None:
        self.scheduler = scheduler = Scheduler(compute, clock)
        admission = Admission(
            max_pending, max_pending_cost, scheduler.rates, lambda: scheduler.standing, max_standing_wait, clock
        )
        super().__init__(admission, clock)
        self.on_pass = on_pass
        self._inbox: queue.SimpleQueue[Sequence[Job]] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def require_alive(self, most: float) -> None:
        """Check that the pass in computation doesn't take too long; raise what `Engine.require_alive` does."""
        if (silent := self.scheduler.seconds_silent) > most:
            raise EngineSilentError(
                f"The engine has work and has shown no sign of life for {silent:.0f} seconds; {most:.0f} are the most. "
                "Restart the process."
            )

    def start(self, first: Callable[[], None] | None = None) -> None:
        """Start the thread.

        Args:
            first: Called in it before any job, for example to load the checkpoints.
        """
        self._thread = threading.Thread(target=self._run, args=(first,), name="compute", daemon=True)
        self._thread.start()

    def close(self, timeout: float | None = None) -> bool:
        """Admits no more jobs and lets the thread finish those it has.

        Args:
            timeout: The most seconds to wait for the thread.

        Returns:
            Whether the thread has ended.
        """
        self.admission.closed = True
        self._inbox.put([])
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _submit(self, jobs: Sequence[Job]) -> None:
        self._loop = asyncio.get_running_loop()
        self._inbox.put(jobs)

    def _abandon(self, job: Job) -> None:
        self._inbox.put([job])  # it is over, which says it all

    def _run(self, first: Callable[[], None] | None) -> None:
        if first is not None:
            first()
        while self._has_work():
            if (done := self.scheduler.compute_pass()) is not None:
                self._tell(done)
            del done  # otherwise finished jobs keep their arrays alive until the next ones come

    def _has_work(self) -> bool:
        """Take in the jobs that have come; wait for some if there are none. False: there will be none."""
        while True:
            try:
                jobs = self._inbox.get(not self.scheduler, CLOSING_SECONDS if self.admission.closed else None)
            except queue.Empty:
                if self.scheduler or not self.admission.pending:
                    return bool(self.scheduler)
                continue
            for job in jobs:
                if job.over:
                    self.scheduler.abandon(job)
            self.scheduler.submit(jobs)

    def _tell(self, done: Pass) -> None:
        self.passes += 1
        # The loop is closed if the service stops while a job is still in computation.
        with contextlib.suppress(RuntimeError):
            if done.settled and self._loop is not None:
                self._loop.call_soon_threadsafe(self._settle, done.settled)
        if done.slices:
            self.on_pass(done.model.name, done.model.version, len(done.slices), done.rows, done.seconds)
