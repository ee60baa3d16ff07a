"""What is computed next: a queue of jobs, and the passes in which one thread computes them.

One thread computes: PyTorch keeps its buffers and threads per calling thread, and a second computation at the same time
would only share the same processors.

A pass has about `PASS_SECONDS` of work. It takes short jobs of one lane that wait (`FairQueue`), or some rows of one
long job. Short and long jobs alternate while both wait, so a small request waits for one such tile at most. While many
short jobs wait, a pass takes more of them. Before each pass, jobs are dropped whose deadline has passed or for which
nobody waits any more.

The mean of a job without draws is the same to the bit at every call, and a matrix product may round a row differently
among others. So such a job shares no pass, and the rows of its passes do not depend on measured speed
(`Job.rows_of_pass`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from murho.service.engine.admission import FairQueue, WorkRates
from murho.service.engine.jobs import Answer, Job, ModelLike, Outcome, Slice
from murho.service.errors import DeadlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

PASS_SECONDS = 0.04
"""Work of one pass. Shorter ones would make large requests slower, longer ones would make small requests wait."""
PASS_SHARE, MOST_PASS_SECONDS = 0.25, 0.12
"""A pass takes this share of the short jobs that wait, if that is more. It delays them little, and one long pass takes
less time than several short ones."""
LEAST_ROWS = 16
"""Rows of a long job in a pass, however slow the model."""


class Pass(NamedTuple):
    """What came of one pass.

    Attributes:
        model: The model that computed.
        slices: The rows.
        rows: Their number.
        seconds: How long it took.
        settled: The jobs that are over, and their answers or errors.
    """

    model: ModelLike
    slices: list[Slice]
    rows: int
    seconds: float
    settled: list[tuple[Job, Answer | BaseException]]


class Scheduler:
    """The jobs that wait, and their passes. Not thread-safe: all but `seconds_silent` is for one thread.

    Attributes:
        rates: How long the work of each model takes.
        passes: How many were computed.
        clock: Monotonic seconds; deadlines are on this clock.

    Args:
        compute: Computes one pass; returns one outcome for each slice, and never raises.
        clock: See above.
    """

    def __init__(
        self, compute: Callable[[Sequence[Slice]], Sequence[Outcome]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rates, self.passes, self.clock = WorkRates(), 0, clock
        self._compute = compute
        self._short, self._long = FairQueue(clock), FairQueue(clock)
        self._long_is_next = False
        self._busy_since: float | None = None  # of the pass in computation

    def __bool__(self) -> bool:
        """Whether a job waits."""
        return bool(self._short) or bool(self._long)

    @property
    def seconds_silent(self) -> float:
        """Seconds that the pass in computation has taken so far; 0 without one. Any thread may ask."""
        since = self._busy_since
        return 0.0 if since is None else self.clock() - since

    @property
    def standing(self) -> tuple[float, float]:
        """Seconds of work in the queue of short jobs, and since when it has not been empty. Any thread may ask."""
        return self._short.seconds, self._short.since

    def submit(self, jobs: Iterable[Job]) -> None:
        """Put jobs, or what is left of them, into the queue. A job is short if one pass computes it."""
        for job in jobs:
            seconds = self.rates.seconds(job.model, job.cost)
            short = seconds <= PASS_SECONDS if job.rows_of_pass is None else job.rows <= job.rows_of_pass
            if job.over:
                continue
            if short and not job.done:
                self._short.add(job, job.cost, seconds)
            else:
                self._long.add(job, job.cost * self._rows_per_pass(job) / job.rows)

    def abandon(self, job: Job) -> None:
        """Drop a job for which nobody waits any more; a pass that computes some of its rows goes on."""
        job.over = True
        self._short.leave(job)

    def compute_pass(self) -> Pass | None:
        """Compute the next pass; return what came of it, or None if nothing waited."""
        turns = self._long if self._long and (self._long_is_next or not self._short) else self._short
        self._long_is_next = turns is self._short
        begin, slices, settled = self.clock(), list[Slice](), list[tuple[Job, Answer | BaseException]]()
        jobs = turns.take(self._room if turns is self._short else lambda _: 0.0)
        for job in jobs:
            if begin >= job.deadline:
                job.over = True
                settled.append((job, deadline_error(job)))
                continue
            if not job.done:
                job.begun = begin
                job.timing.queue = begin - job.submitted
            slices.append(Slice(job, job.done, job.rows if turns is self._short else self._rows_per_pass(job)))
        if not slices:
            return Pass(jobs[0].model, [], 0, 0.0, settled) if jobs else None
        self._busy_since = begin
        self.passes += 1
        outcomes = self._compute(slices)
        seconds = self.clock() - begin
        self._busy_since = None
        return self._after(slices, outcomes, seconds, settled)

    def _room(self, first: Job) -> float:
        """Return the most cost of the next pass of short jobs."""
        if first.rows_of_pass is not None:
            return 0.0
        seconds = max(PASS_SECONDS, min(MOST_PASS_SECONDS, PASS_SHARE * self._short.seconds))
        return seconds / self.rates.seconds(first.model, 1.0)

    def _after(
        self,
        slices: list[Slice],
        outcomes: Sequence[Outcome],
        seconds: float,
        settled: list[tuple[Job, Answer | BaseException]],
    ) -> Pass:
        """Learn from a pass, and puts the jobs that are not through back into the queue."""
        cost, rows, model = 0.0, 0, slices[0].job.model
        for part, outcome in zip(slices, outcomes, strict=True):
            job = part.job
            job.timing.compute += seconds
            cost += job.cost * part.rows / job.rows
            rows += part.rows
            if outcome is not None and not job.over:
                settled.append((job, outcome))
                job.over = True
        self.rates.record(model, cost, seconds)
        self.submit(part.job for part in slices)
        return Pass(model, slices, rows, seconds, settled)

    def _rows_per_pass(self, job: Job) -> int:
        rows = job.rows_of_pass
        if rows is None:
            seconds_per_row = self.rates.seconds(job.model, job.cost / job.rows)
            rows = max(LEAST_ROWS, int(PASS_SECONDS / max(seconds_per_row, 1e-9)))
        return min(job.rows - job.done, rows)


def deadline_error(job: Job) -> DeadlineError:
    """Return the error of a job whose deadline has passed."""
    seconds = job.deadline - job.arrived
    state = "it waited for its turn" if job.begun is None else f"{job.done} of {job.rows} rows were computed"
    advice = "Send fewer rows, ask" if job.rows > 1 else "Ask"
    return DeadlineError(
        f"There was no answer within {round(seconds, 1) or seconds:g} seconds: {state}. {advice} for fewer samples, "
        "or allow more time."
    )
