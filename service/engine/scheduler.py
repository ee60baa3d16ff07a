"""The one thread that computes, what it computes next, and who waits for it.

One long-lived thread computes: PyTorch keeps its buffers and threads per calling thread, and a second computation at
the same time would only share the same processors. Nor does the event loop compute, not even a request that is alone:
a hung engine would hang `/healthz` and every deadline with it.

The thread works in passes of about `PASS_SECONDS`. A pass takes short jobs of one lane that wait (`FairQueue`), or some
rows of one long job. Short and long jobs alternate while both wait, so a small request waits for one such tile at most.
While many short jobs wait, a pass takes more of them. Before each pass, jobs are dropped whose deadline has passed or
for which nobody waits any more.

The mean of a job without draws is the same to the bit at every call, and a matrix product may round a row differently
among others. So such a job shares no pass, and the rows of its passes do not depend on measured speed
(`Job.rows_of_pass`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from murho.service.engine.admission import Admission, FairQueue, WorkRates
from murho.service.engine.jobs import Answer, Job, ModelLike, Outcome, Slice
from murho.service.errors import ClientGoneError, DeadlineError, EngineSilentError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence

PASS_SECONDS = 0.04
"""Work of one pass. Shorter ones would make large requests slower, longer ones would make small requests wait."""
PASS_SHARE, MOST_PASS_SECONDS = 0.25, 0.12
"""A pass takes this share of the short jobs that wait, if that is more. It delays them little, and one long pass takes
less time than several short ones."""
LEAST_ROWS = 16
"""Rows of a long job in a pass, however slow the model."""
PAUSE_SECONDS = 0.004
"""The event loop pauses for so long, at most once in each of its rounds, where requests come while a full pass waits,
and where they are refused. Otherwise it takes the interpreter's lock, which each of PyTorch's and NumPy's functions
gives up, nearly every time, and the compute thread waits until the loop has nothing left to do. After a pause, which is
short beside the pass, the loop finds several requests at once."""
WATCH_SECONDS = 0.05
"""How often the timer looks at those who wait, and how long a request may take before its client is watched."""
CLOSING_SECONDS = 0.01
"""How often the compute thread looks whether the last request has ended, once no more are admitted."""

Receive: TypeAlias = "Callable[[], Awaitable[MutableMapping[str, Any]]]"
"""The next message of the client, as in an ASGI application."""


class Scheduler:
    """A bounded queue in front of one compute thread.

    Attributes:
        admission: What is pending, and whether there is room for more.
        rates: How long the work of each model takes.
        passes: How many were computed.
        noticed: Called in the compute thread after each pass, with its model, its jobs, its rows and its seconds.

    Args:
        compute: Computes one pass, called in the compute thread; returns one outcome for each slice, and never raises.
        max_pending: The most requests waiting or in computation.
        max_pending_cost: The most cost waiting or in computation.
        max_standing_wait: Seconds of short jobs that may wait in a queue that stands (`Admission`).
        clock: Monotonic seconds; deadlines are on this clock.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Slice]], Sequence[Outcome]],
        max_pending: int,
        max_pending_cost: float,
        *,
        max_standing_wait: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.rates = WorkRates()
        self.passes = 0
        self.noticed: Callable[[ModelLike, int, int, float], None] = lambda *_: None
        self._compute = compute
        self._changed = threading.Condition(threading.Lock())
        self._short, self._long = FairQueue(clock), FairQueue(clock)
        self.admission = Admission(max_pending, max_pending_cost, self.rates, self._short, max_standing_wait, clock)
        self._long_is_next = self._pausing = False
        self._busy_since: float | None = None  # of the pass in computation
        self._arriving: list[Job] = []
        self._waiting: dict[Job, Receive | None] = {}
        self._watches: dict[Job, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None

    def start(self, first: Callable[[], None] | None = None) -> None:
        """Starts the compute thread.

        Args:
            first: Called in the compute thread before any job, for example to load the checkpoints.
        """
        self._thread = threading.Thread(target=self._run, args=(first,), name="compute", daemon=True)
        self._thread.start()

    def close(self, timeout: float | None = None) -> bool:
        """Admits no more jobs and lets the thread finish those admitted.

        Args:
            timeout: The most seconds to wait for the thread.

        Returns:
            Whether the thread has ended.
        """
        with self._changed:
            self.admission.closed = True
            self._changed.notify()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def seconds_silent(self) -> float:
        """Seconds that the pass in computation has taken so far; 0 without one."""
        since = self._busy_since
        return 0.0 if since is None else self.clock() - since

    @property
    def full_pass_waits(self) -> bool:
        """Whether short jobs wait that fill a pass."""
        return self._short.seconds >= PASS_SECONDS

    def require_alive(self, most: float) -> None:
        """Checks that the engine isn't silent for too long. A thread that waits for work, or loads, is never silent.

        Raises:
            EngineSilentError: A pass takes more than `most` seconds.
        """
        if (silent := self.seconds_silent) > most:
            raise EngineSilentError(
                f"The engine has work and has shown no sign of life for {silent:.0f} seconds; {most:.0f} are the most. "
                "Restart the process."
            )

    async def answer(self, job: Job, receive: Receive | None = None) -> Answer:
        """Returns the answer of a job whose work is admitted.

        Args:
            job: The job.
            receive: Tells whether the client is gone, as an ASGI application's `receive` does once the body is read;
                None: nobody can go.

        Raises:
            RowsNotFiniteError, ComputationError, NotReadyError: See `jobs.compute`.
            DeadlineError: The deadline came first.
            ClientGoneError: The client closed the connection.
        """
        job.submitted = self.clock()
        self._waiting[job] = receive
        loop = job.future.get_loop()
        if self._timer is None:
            self._timer = loop.call_later(WATCH_SECONDS, self._look)
        self._arriving.append(job)
        if len(self._arriving) == 1:
            # All requests that have arrived by now are read first. So they share a pass, and the interpreter's lock
            # does not go to and fro between the threads.
            loop.call_soon(self._admit_arriving)
        try:
            return await job.future
        finally:
            del self._waiting[job]
            if not job.over:  # no answer was computed: the caller was cancelled, or one of the two errors came first
                with self._changed:
                    job.over = True  # a pass that computes some of its rows goes on
                    self._short.leave(job)
            if (watch := self._watches.pop(job, None)) is not None:
                watch.cancel()

    def _look(self) -> None:
        """Ends the wait of jobs whose deadline has passed, and begins to watch the clients of slow jobs."""
        self._timer = None
        now = self.clock()
        for job, receive in self._waiting.items():
            if job.future.done():
                continue
            if now >= job.deadline:
                job.future.set_exception(self._too_late(job))
            elif receive is not None and job not in self._watches and now - job.submitted >= WATCH_SECONDS:
                self._watches[job] = asyncio.ensure_future(_watch(job, receive))
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)

    def _admit_arriving(self) -> None:
        """Hands the jobs that have arrived to the compute thread."""
        arriving, self._arriving = self._arriving, []
        with self._changed:
            for job in arriving:
                if not job.over:
                    self._enqueue(job)
            self._changed.notify()
        if self.full_pass_waits:
            self.pause()

    def pause(self) -> None:
        """Has the event loop pause once all callbacks that are ready by now have run; see `PAUSE_SECONDS`."""
        if not self._pausing:
            self._pausing = True
            asyncio.get_running_loop().call_soon(self._pause)

    def _pause(self) -> None:
        self._pausing = False
        time.sleep(PAUSE_SECONDS)

    def _enqueue(self, job: Job) -> None:
        """Puts a job, or what is left of it, into the queue. A job is short if one pass computes it."""
        seconds = self.rates.seconds(job.model, job.cost)
        short = seconds <= PASS_SECONDS if job.rows_of_pass is None else job.rows <= job.rows_of_pass
        if short and not job.done:
            self._short.add(job, job.cost, seconds)
        else:
            self._long.add(job, job.cost * self._rows_per_pass(job) / job.rows)

    def _run(self, first: Callable[[], None] | None) -> None:
        if first is not None:
            first()
        while (slices := self._next()) is not None:
            if not slices:
                continue
            self._busy_since = begin = self.clock()
            for part in slices:
                if part.start == 0:
                    part.job.begun = begin
                    part.job.timing.queue = begin - part.job.submitted
            self.passes += 1
            outcomes = self._compute(slices)
            seconds = self.clock() - begin
            self._busy_since = None
            self._after(slices, outcomes, seconds)
            # Otherwise finished jobs keep their arrays alive until the next ones come.
            del slices, outcomes, part

    def _next(self) -> list[Slice] | None:
        """Waits for jobs and returns the slices of the next pass; None once the scheduler is closed and empty."""
        with self._changed:
            while not (self._short or self._long):
                if self.admission.closed and not self.admission.pending:
                    return None
                self._changed.wait(CLOSING_SECONDS if self.admission.closed else None)
            turns = self._long if self._long and (self._long_is_next or not self._short) else self._short
            self._long_is_next = turns is self._short
            jobs = turns.take(self._room if turns is self._short else lambda _: 0.0)
            now, slices, late = self.clock(), [], []
            for job in jobs:
                if now >= job.deadline:
                    job.over = True
                    late.append((job, self._too_late(job)))
                else:
                    slices.append(Slice(job, job.done, job.rows if turns is self._short else self._rows_per_pass(job)))
        if late:
            _settle(late)
        return slices

    def _room(self, first: Job) -> float:
        """Returns the most cost of the next pass of short jobs."""
        if first.rows_of_pass is not None:
            return 0.0
        seconds = max(PASS_SECONDS, min(MOST_PASS_SECONDS, PASS_SHARE * self._short.seconds))
        return seconds / self.rates.seconds(first.model, 1.0)

    def _after(self, slices: Sequence[Slice], outcomes: Sequence[Outcome], seconds: float) -> None:
        """Learns from a pass, settles the jobs that are through, and puts the others back into the queue."""
        settled: list[tuple[Job, Answer | BaseException]] = []
        cost, rows, model = 0.0, 0, slices[0].job.model
        with self._changed:
            for part, outcome in zip(slices, outcomes, strict=True):
                job = part.job
                job.timing.compute += seconds
                cost += job.cost * part.rows / job.rows
                rows += part.rows
                if outcome is not None:
                    settled.append((job, outcome))
                    job.over = True
                elif not job.over:
                    self._enqueue(job)
            self.rates.record(model, cost, seconds)
        sent = _settle(settled) if settled else None
        self.noticed(model, len(slices), rows, seconds)
        if sent is not None and not self.full_pass_waits:
            # Both threads need the interpreter's lock, so to begin before the answers are sent would gain nothing;
            # and requests that arrive meanwhile share the next pass. While one waits that is full, nothing is gained.
            sent.wait(PASS_SECONDS)

    def _rows_per_pass(self, job: Job) -> int:
        rows = job.rows_of_pass
        if rows is None:
            seconds_per_row = self.rates.seconds(job.model, job.cost / job.rows)
            rows = max(LEAST_ROWS, int(PASS_SECONDS / max(seconds_per_row, 1e-9)))
        return min(job.rows - job.done, rows)

    def _too_late(self, job: Job) -> DeadlineError:
        """Returns the error of a job whose deadline has passed."""
        seconds = job.deadline - job.arrived
        said = "it waited for its turn" if job.begun is None else f"{job.done} of {job.rows} rows were computed"
        advice = "Send fewer rows, ask" if job.rows > 1 else "Ask"
        return DeadlineError(
            f"There was no answer within {round(seconds, 1) or seconds:g} seconds: {said}. {advice} for fewer samples, "
            "or allow more time."
        )


async def _watch(job: Job, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    if not job.future.done():
        job.future.set_exception(ClientGoneError("The client closed the connection before the answer."))


def _settle(outcomes: Sequence[tuple[Job, Answer | BaseException]]) -> threading.Event:
    """Hands outcomes of the compute thread to the event loop that waits for them, all at once.

    Returns:
        An event that is set once the loop has gone on with all of them.
    """
    sent = threading.Event()
    # The loop is closed if the service stops while a job is still in computation.
    with contextlib.suppress(RuntimeError):
        outcomes[0][0].future.get_loop().call_soon_threadsafe(_set, outcomes, sent)
    return sent


def _set(outcomes: Sequence[tuple[Job, Answer | BaseException]], sent: threading.Event) -> None:
    for job, outcome in outcomes:
        if job.future.done():
            continue
        if isinstance(outcome, BaseException):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)
    # After those who wait for the outcomes, the record of all, the tasks that they start, and these tasks' jobs.
    _after_turns(4, sent)


def _after_turns(turns: int, sent: threading.Event) -> None:
    if turns:
        asyncio.get_running_loop().call_soon(_after_turns, turns - 1, sent)
    else:
        sent.set()
