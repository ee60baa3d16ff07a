"""The bounded queue in front of the one thread that computes, and what this thread computes next.

Work is admitted up to a bound, in requests and in cost (row-draws), and up to a lower one while more comes than can be
computed (`Admission`). Above the bound it is refused at once, with the time after which there will be room. One
long-lived thread computes: PyTorch keeps its buffers and threads per calling thread, and a second computation at the
same time would only share the same processors.

The thread works in passes of about `PASS_SECONDS`. A pass takes short jobs of one lane that wait (`Job.lane`), or some
rows of one long job. Short and long jobs alternate while both wait, so a small request waits for one such tile at most.
While many short jobs wait, a pass takes more of them. Before each pass, jobs are dropped whose deadline has passed or
for which nobody waits any more.

The mean of a job without draws is the same to the bit at every call, and a matrix product may round a row differently
among others. So such a job shares no pass, and the rows of its passes do not depend on measured speed
(`Job.rows_of_pass`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, TypeAlias

from murho.service.engine.admission import Admission
from murho.service.engine.heartbeat import Heartbeat
from murho.service.engine.jobs import Answer, Job, Reservation, Slice
from murho.service.engine.settling import settle
from murho.service.engine.standing_queue import StandingQueue
from murho.service.engine.turns import Turns
from murho.service.engine.work_rates import WorkRates
from murho.service.errors import DeadlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from murho.service.engine.jobs import ModelLike

__all__ = ["PASS_SECONDS", "Outcome", "Scheduler"]

PASS_SECONDS = 0.04
"""Work of one pass. Shorter ones would make large requests slower, longer ones would make small requests wait."""
PASS_SHARE, MOST_PASS_SECONDS = 0.25, 0.12
"""A pass takes this share of the short jobs that wait, if that is more. It delays them little, and one long pass takes
less time than several short ones."""
LEAST_ROWS = 16
"""Rows of a long job in a pass, however slow the model."""

Outcome: TypeAlias = "Answer | BaseException | None"
"""What became of a slice: the answer of its job, an error, or None while rows of the job are left."""


class Scheduler:
    """A bounded queue in front of one compute thread.

    Attributes:
        rates: How long the work of each model takes.
        passes: How many were computed.
        noticed: Called in the compute thread after each pass, with its number of jobs and its seconds.

    Args:
        compute: Computes one pass, called in the compute thread; returns one outcome for each slice, and never raises.
        max_pending: The most jobs waiting or in computation.
        max_pending_cost: The most cost waiting or in computation.
        max_delay: Seconds that the first short job waits for company; 0: not at all.
        max_standing_wait: Seconds of short jobs that may wait in a queue that stands (`StandingQueue`).
        heartbeat: Is told when a pass begins and ends.
        clock: Monotonic seconds; deadlines are on this clock.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Slice]], Sequence[Outcome]],
        max_pending: int,
        max_pending_cost: float,
        *,
        max_delay: float = 0.0,
        max_standing_wait: float = float("inf"),
        heartbeat: Heartbeat | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_delay, self.clock = max_delay, clock
        self.rates = WorkRates()
        self.passes = 0
        self._compute = compute
        self.noticed: Callable[[int, float], None] = lambda _jobs, _seconds: None
        self._heartbeat = heartbeat or Heartbeat()
        self._changed = threading.Condition(threading.Lock())
        self._short, self._long = Turns(), Turns()
        self._standing = StandingQueue(max_standing_wait, clock)
        self._admission = Admission(max_pending, max_pending_cost, self.rates, self._standing)
        self._long_is_next = False
        self._arriving: list[Job] = []
        self._thread: threading.Thread | None = None

    @property
    def max_pending(self) -> int:
        """The most jobs waiting or in computation."""
        return self._admission.max_pending

    @property
    def pending(self) -> int:
        """Jobs waiting or in computation."""
        return self._admission.pending

    @property
    def pending_cost(self) -> float:
        """Cost waiting or in computation, in row-draws."""
        return self._admission.pending_cost

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
            self._admission.closed = True
            self._changed.notify()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def require_room(self, cost: float = 0.0, rows: int = 1) -> None:
        """Checks that a job of this cost and number of rows would be admitted now.

        Raises:
            TooLargeError: The cost alone is above the bound.
            QueueFullError: Too much is pending.
            NotReadyError: The scheduler is closed.
        """
        self._admission.require_room(cost, rows)

    @contextlib.contextmanager
    def reserved(self, model: ModelLike, cost: float, rows: int) -> Iterator[Reservation]:
        """Admits work that comes as one job after the other; these are then admitted without a question.

        Args:
            model: The checkpoint.
            cost: Of all of it.
            rows: Of all of it.

        Raises:
            TooLargeError: The cost alone is above the bound.
            QueueFullError: Too much is pending.
            NotReadyError: The scheduler is closed.
        """
        reservation = Reservation(cost)
        with self._changed:
            self._admission.admit(model, cost, rows)
        try:
            yield reservation
        finally:
            with self._changed:
                self._admission.end(model, reservation.left)
                reservation.left = 0.0
                self._notify_if_closed()

    def submit(self, job: Job) -> None:
        """Admits a job. Its future gets an `Answer` or an error.

        Raises:
            TooLargeError: The cost alone is above the bound.
            QueueFullError: Too much is pending.
            NotReadyError: The scheduler is closed.
        """
        job.submitted = self.clock()
        with self._changed:
            if job.reservation is None:
                self._admission.admit(job.model, job.cost, job.rows)
            else:
                self._admission.add(job.model, job.cost - job.reservation.take(job.cost))
        self._arriving.append(job)
        if len(self._arriving) == 1:
            # All requests that have arrived by now are read first. So they share a pass, and the interpreter's lock
            # does not go to and fro between the threads.
            job.future.get_loop().call_soon(self._admit_arriving)

    def _admit_arriving(self) -> None:
        """Hands the jobs that have arrived to the compute thread."""
        arriving, self._arriving = self._arriving, []
        with self._changed:
            for job in arriving:
                if not job.over:
                    self._enqueue(job)
            self._changed.notify()

    def forget(self, job: Job) -> None:
        """Drops a job for which nobody waits any more; a pass that computes some of its rows goes on."""
        with self._changed:
            self._end(job)

    def _enqueue(self, job: Job) -> None:
        """Puts a job, or what is left of it, into the queue."""
        left = self._left(job)
        seconds = left * self.rates.seconds_per_cost(job.model)
        if self._is_short(job, seconds):
            self._short.add(job, left)
            self._standing.add(job, seconds)
        else:
            self._long.add(job, left * self._rows_per_pass(job) / (job.rows - job.done))

    @staticmethod
    def _is_short(job: Job, seconds: float) -> bool:
        """Whether one pass computes a job, of which so much is left."""
        if job.rows_of_pass is not None:
            return job.rows <= job.rows_of_pass
        return job.done == 0 and seconds <= PASS_SECONDS

    def _run(self, first: Callable[[], None] | None) -> None:
        if first is not None:
            first()
        while (slices := self._next()) is not None:
            if not slices:
                continue
            begin = self.clock()
            for part in slices:
                if part.start == 0:
                    part.job.begun = begin
                    part.job.timing.queue = begin - part.job.submitted
            self.passes += 1
            self._heartbeat.busy()
            outcomes = self._compute(slices)
            self._heartbeat.idle()
            seconds = self.clock() - begin
            self._after(slices, outcomes, seconds)
            self.noticed(len(slices), seconds)
            # Otherwise finished jobs keep their arrays alive until the next ones come.
            del slices, outcomes

    def _next(self) -> list[Slice] | None:
        """Waits for jobs and returns the slices of the next pass; None once the scheduler is closed and empty."""
        with self._changed:
            while not (self._short or self._long):
                if self._admission.closed and not self.pending:
                    return None
                self._changed.wait()
            if self.max_delay and not self._long:
                self._wait_for_company()
            turns = self._long if self._long and (self._long_is_next or not self._short) else self._short
            self._long_is_next = turns is self._short
            if turns is self._short:
                jobs = turns.take(self._room(), self._left)
                for job in jobs:
                    self._standing.remove(job)
            else:
                jobs = turns.take(0.0, self._left)
            now = self.clock()
            late = [job for job in jobs if now >= job.deadline]
            for job in late:
                self._end(job)
            slices = [Slice(job, job.done, self._stop(job, turns)) for job in jobs if now < job.deadline]
        if late:
            settle([(job, self.too_late(job)) for job in late])
        return slices

    def _room(self) -> float:
        """Returns the most cost of the next pass of short jobs."""
        head = self._short.head()
        if head is None or head.rows_of_pass is not None:
            return 0.0
        seconds = max(PASS_SECONDS, min(MOST_PASS_SECONDS, PASS_SHARE * self._standing.seconds))
        return seconds / self.rates.seconds_per_cost(head.model)

    def _stop(self, job: Job, turns: Turns) -> int:
        return job.rows if turns is self._short else min(job.rows, job.done + self._rows_per_pass(job))

    def _wait_for_company(self) -> None:
        head = self._short.head()
        while (
            head is not None
            and (left := head.submitted + self.max_delay - self.clock()) > 0
            and not self._admission.closed
        ):
            self._changed.wait(left)

    def _after(self, slices: Sequence[Slice], outcomes: Sequence[Outcome], seconds: float) -> None:
        """Learns from a pass, settles the jobs that are through, and puts the others back into the queue."""
        settled = []
        cost = 0.0
        with self._changed:
            for part, outcome in zip(slices, outcomes, strict=True):
                job = part.job
                job.timing.compute += seconds
                cost += job.cost * part.rows / job.rows
                if outcome is not None:
                    settled.append((job, outcome))
                    self._end(job)
                elif not job.over:
                    self._enqueue(job)
            self.rates.record(slices[0].job.model, cost, seconds)
        settle(settled)

    def _end(self, job: Job) -> None:
        """Counts a job as no longer pending, once."""
        if job.over:
            return
        job.over = True
        self._standing.remove(job)
        if job.reservation is None:
            self._admission.end(job.model, job.cost)
        else:
            self._admission.add(job.model, -job.cost)
        self._notify_if_closed()

    def _notify_if_closed(self) -> None:
        """Lets the compute thread see that a job is over: after `close` it waits for the last one."""
        if self._admission.closed:
            self._changed.notify()

    def _left(self, job: Job) -> float:
        """Returns the cost of the rows that are left."""
        return job.cost * (job.rows - job.done) / job.rows

    def _rows_per_pass(self, job: Job) -> int:
        if job.rows_of_pass is not None:
            return min(job.rows - job.done, job.rows_of_pass)
        seconds_per_row = self.rates.seconds_per_cost(job.model) * job.cost / job.rows
        return min(job.rows - job.done, max(LEAST_ROWS, int(PASS_SECONDS / max(seconds_per_row, 1e-9))))

    def too_late(self, job: Job) -> DeadlineError:
        """Returns the error of a job whose deadline has passed; it says what took the time, and what helps."""
        seconds = job.deadline - job.submitted
        if seconds < 0.001:
            return DeadlineError("There was no answer within the wanted time, less than a millisecond. Allow more.")
        said = f"There was no answer within {round(seconds, 1 if seconds > 0.09 else 3):g} seconds: "
        if job.begun is None:
            others = self.pending - 1
            behind = f" behind {others} other{'s' * (others > 1)}" if others > 0 else ""
            return DeadlineError(f"{said}the request waited for its turn{behind}. Try again later, or allow more time.")
        waited = f"after {job.timing.queue:.2g} seconds in the queue, "
        if job.rows == 1:
            return DeadlineError(f"{said}{waited}its computation took the rest. Ask for fewer samples, or try later.")
        return DeadlineError(
            f"{said}{waited}{job.done} of {job.rows} rows were computed. Send fewer rows, ask for fewer samples, or "
            "allow more time."
        )
