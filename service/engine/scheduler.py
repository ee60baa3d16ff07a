"""The one thread that computes, what it computes next, and who waits for it.

One long-lived thread computes: PyTorch keeps its buffers and threads per calling thread, and a second computation at
the same time would only share the same processors. Nor does the event loop compute, not even a request that is alone:
a hung engine would hang `/healthz` and every deadline with it.

The thread works in passes of about `PASS_SECONDS`. A pass takes short jobs of one lane that wait (`Turns`), or some
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
import heapq
import threading
import time
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from murho.service.engine.jobs import Answer, Job, ModelLike, Outcome, Slice
from murho.service.errors import (
    ClientGoneError,
    DeadlineError,
    EngineSilentError,
    NotReadyError,
    QueueFullError,
    TooLargeError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence

__all__ = [
    "FIRST_SECONDS_PER_COST",
    "PASS_SECONDS",
    "Admission",
    "Admitted",
    "Receive",
    "Scheduler",
    "Turns",
    "WorkRates",
]


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
        self._short, self._long = Turns(clock), Turns(clock)
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


FIRST_SECONDS_PER_COST = 2e-7
"""Before anything was measured: a network of 2 x 64 units on one core."""
LARGE = 8192.0
"""A pass of less cost only shows that work isn't slower than this: most of its time is the same for every pass."""
MEMORY = 0.9
"""Weight of all earlier passes at each new one."""
STANDING_SECONDS = 10.0
"""A queue stands if it has not been empty for this long."""


class WorkRates:
    """How long work takes: seconds per row-draw of each model, learned from passes. It forgets a model with it."""

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[ModelLike, tuple[float, float]] = WeakKeyDictionary()

    def record(self, model: ModelLike, cost: float, seconds: float) -> None:
        """Learns from one pass.

        Args:
            model: The model.
            cost: The work of the pass, in row-draws.
            seconds: How long it took.
        """
        seen = self._seen.get(model)
        # A process that stood still in a pass would otherwise believe for ever that all work is long, and never
        # again put requests together, whose passes would show that it isn't.
        if cost < LARGE and (seen is None or seconds * seen[0] >= cost * seen[1]):
            return
        costs, times = seen or (0.0, 0.0)
        self._seen[model] = MEMORY * costs + cost, MEMORY * times + seconds

    def seconds(self, model: ModelLike, cost: float) -> float:
        """Returns the seconds that work of a model takes."""
        seen = self._seen.get(model)
        return cost * (FIRST_SECONDS_PER_COST if seen is None else seen[1] / seen[0])


@dataclass(slots=True, eq=False)
class Admitted:
    """The work of one request that is admitted.

    Attributes:
        cost: Its cost, in row-draws.
        left: The same, but for what is computed already.
        rate: Seconds that a row-draw took when it was admitted.
    """

    cost: float
    left: float
    rate: float


class Admission:
    """What is admitted and has no answer so far, within its bounds. Not thread-safe: the event loop counts.

    A queue of small requests that empties now and then is a burst: everything in it is wanted and will soon be done.
    One that has not been empty for `STANDING_SECONDS` stands: more comes than can be computed, so a longer queue
    answers no more requests, but answers each of them later (Nichols and Jacobson 2012, "Controlling queue delay";
    Maurer 2015, "Fail at scale"). So it is kept short, and what is answered is answered soon.

    Attributes:
        max_pending: The most requests.
        max_pending_cost: The most cost of all of them, in row-draws.
        pending: Number of requests.
        pending_cost: Their cost.
        closed: Whether nothing more is admitted.

    Args:
        max_pending: See above.
        max_pending_cost: See above.
        rates: How long the work of each model takes.
        short: The queue of small requests.
        max_standing_wait: Seconds of work that may wait in it once it stands.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        max_pending: int,
        max_pending_cost: float,
        rates: WorkRates,
        short: Turns,
        max_standing_wait: float,
        clock: Callable[[], float],
    ) -> None:
        self.max_pending, self.max_pending_cost = max_pending, max_pending_cost
        self.pending, self.pending_cost, self.closed = 0, 0.0, False
        self._rates, self._short, self._most_wait, self._clock = rates, short, max_standing_wait, clock
        self._seconds = 0.0

    def admit(self, model: ModelLike, cost: float, rows: int) -> Admitted:
        """Counts a request, if there is room for it; returns what `done` and `end` take.

        Raises:
            TooLargeError, QueueFullError, NotReadyError: See `require_room`.
        """
        self.require_room(cost, rows)
        admitted = Admitted(0.0, 0.0, self._rates.seconds(model, 1.0))
        self.pending += 1
        self._add(admitted, cost)
        return admitted

    def extend(self, admitted: Admitted, cost: float) -> None:
        """Counts further work of a request that is admitted, if there is room for it.

        Raises:
            TooLargeError: The cost of the whole request is above the bound.
            QueueFullError: Too much is pending.
        """
        if admitted.cost + cost > self.max_pending_cost:
            raise TooLargeError(
                f"The request costs {admitted.cost + cost:.0f} row-draws, with those of its groups (groups x samples x "
                f"levels, and more for exact counts), and this service takes at most {self.max_pending_cost:.0f} at "
                "once. Ask for fewer levels or samples, or group by something coarser."
            )
        if self.pending_cost + cost > self.max_pending_cost:
            raise self._full()
        self._add(admitted, cost)

    def _add(self, admitted: Admitted, cost: float) -> None:
        admitted.cost += cost
        admitted.left += cost
        self.pending_cost += cost
        self._seconds += cost * admitted.rate

    def done(self, admitted: Admitted, cost: float) -> None:
        """Counts a part of the work of a request as done."""
        cost = min(cost, admitted.left)
        admitted.left -= cost
        self.pending_cost -= cost
        self._seconds -= cost * admitted.rate

    def end(self, admitted: Admitted) -> None:
        """Counts a request that is over."""
        self.pending -= 1
        if admitted.left:
            self.done(admitted, admitted.left)
        if not self.pending:
            self.pending_cost = self._seconds = 0.0  # rounding errors end here

    def require_room(self, cost: float = 0.0, rows: int = 1) -> None:
        """Checks that a request of this cost and number of rows would be admitted now.

        Raises:
            TooLargeError: The cost alone is above the bound.
            QueueFullError: Too much is pending.
            NotReadyError: Nothing more is admitted.
        """
        if self.closed:
            raise NotReadyError("The service is shutting down.", retry_after=5)
        if cost > self.max_pending_cost:
            most = int(self.max_pending_cost * rows / cost)
            raise TooLargeError(
                f"{rows} rows cost {cost:.0f} row-draws (rows x samples, and more for many levels), and this "
                f"service takes at most {self.max_pending_cost:.0f} at once. "
                + (f"Send at most {most} rows, or ask for fewer samples." if most else "Ask for fewer samples.")
            )
        if self.pending >= self.max_pending or self.pending_cost + cost > self.max_pending_cost:
            raise self._full()
        wait = self._short.seconds
        if wait > self._most_wait and (standing := self._clock() - self._short.since) >= STANDING_SECONDS:
            raise QueueFullError(
                f"More comes than this service can compute: for {standing:.0f} s the queue has not been empty, and the "
                f"small requests in it take about {wait:.1f} s. Try again later.",
                retry_after=max(1, round(wait)),
            )

    def _full(self) -> QueueFullError:
        return QueueFullError(
            f"{self.pending} requests with {self.pending_cost:.0f} row-draws are pending, which is all that this "
            f"service takes on; they take about {self._seconds:.1f} s. Try again later.",
            retry_after=max(1, min(3600, round(self._seconds))),
        )


class Turns:
    """The waiting jobs of one class, in the order of their turns. Not thread-safe.

    Start-time fair queueing: no caller and no model can crowd out the others. Every job gets a start tag, in units of
    cost: the larger of the current virtual time and the finish tag of the same caller's previous job for the same
    model. Its finish tag is the start tag plus its cost. The job with the lowest start tag is next, and the virtual
    time is the start tag of the last job taken (Goyal, Vin and Cheng 1996, "Start-time fair queuing"). A caller with
    one job is thus served before the second job of a caller with a thousand.

    Jobs of one lane can be answered in one pass, so they are taken together: those with the same checkpoint, seed and
    number of draws, all of which share passes or none.

    Attributes:
        seconds: Work that waits, by what work of its model took when it came.
        since: When it began not to be empty.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = self.since = 0.0
        self._clock = clock
        self._lanes: dict[object, list[tuple[float, int, Job]]] = {}
        self._finish: dict[tuple[str, str], float] = {}
        self._now = 0.0
        self._numbers = count()

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def add(self, job: Job, cost: float, seconds: float = 0.0) -> None:
        """Gives a job its place.

        Args:
            job: The job.
            cost: The cost of what will be computed at its turn.
            seconds: How long that takes.
        """
        if not self._lanes:
            self.since = self._clock()
        job.waiting = seconds
        self.seconds += seconds
        flow = (job.caller, job.model.name)
        start = max(self._now, self._finish.get(flow, 0.0))
        self._finish[flow] = start + cost
        seed = job.model.spec.default_seed if job.options.seed is None else job.options.seed
        lane = job.model, seed, job.options.samples, job.rows_of_pass is None
        heapq.heappush(self._lanes.setdefault(lane, []), (start, next(self._numbers), job))

    def leave(self, job: Job) -> None:
        """Counts a job that waits no more; one that did not wait is fine, too."""
        self.seconds -= job.waiting
        job.waiting = 0.0

    def take(self, room: Callable[[Job], float]) -> list[Job]:
        """Removes and returns the job whose turn it is and the next ones of its lane. Jobs that are over are dropped.

        Args:
            room: Returns the most cost of all of them for the first job, which is taken whatever it costs.

        Returns:
            Jobs of one lane in the order of their turns; none if no job waits.
        """
        while self._lanes:
            name, lane = min(self._lanes.items(), key=itemgetter(1))  # by their first jobs
            taken: list[Job] = []
            left = 0.0
            while lane and (lane[0][2].over or not taken or lane[0][2].cost <= left):
                start, _, job = heapq.heappop(lane)
                if not job.over:
                    self._now = max(self._now, start)
                    left = (left if taken else room(job)) - job.cost
                    taken.append(job)
                self.leave(job)
            if not lane:
                del self._lanes[name]
            if not self._lanes:  # nobody waits, so nobody has to be remembered
                self._finish.clear()
                self._now = self.seconds = 0.0  # rounding errors end here
            if taken:
                return taken
        return []
