"""The bounded queue in front of the one thread that computes.

Work is admitted up to a bound, in requests and in cost (row-draws). Above the bound it is refused at once, with the
advice to come back later. One long-lived thread computes in order of arrival: PyTorch keeps its buffers and threads per
calling thread, and a second computation at the same time would only share the same processors. Work whose deadline has
passed, or whose client is gone, is dropped before it is computed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from murho.service.errors import DeadlineError, NotReadyError, QueueFullError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Abandoned", "Scheduler", "Timing"]

Result = TypeVar("Result")

Abandoned: TypeAlias = "Callable[[], bool]"
"""Returns true once the client is gone. Long work calls it now and then, and may then return anything or raise."""


@dataclass(slots=True)
class Timing:
    """Seconds that one job spent in the queue and in computation."""

    queue: float = 0.0
    compute: float = 0.0


@dataclass(slots=True)
class _Job:
    work: Callable[[Abandoned], Any]
    cost: int
    deadline: float | None
    timing: Timing
    submitted: float
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    # Set from the event loop, read by the compute thread.
    abandoned: threading.Event = field(default_factory=threading.Event)


class Scheduler:
    """A bounded queue in front of one compute thread.

    Args:
        max_pending: The most jobs waiting or in computation.
        max_pending_cost: The most cost waiting or in computation.
        clock: Monotonic seconds; deadlines are on this clock.
    """

    def __init__(
        self,
        max_pending: int,
        max_pending_cost: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_pending = max_pending
        self.max_pending_cost = max_pending_cost
        self.clock = clock
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._pending = 0
        self._pending_cost = 0
        self._seconds_per_cost = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """Jobs waiting or in computation."""
        return self._pending

    @property
    def pending_cost(self) -> int:
        """Cost waiting or in computation, in row-draws."""
        return self._pending_cost

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
            self._closed = True
            self._changed.notify()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    async def run(
        self,
        work: Callable[[Abandoned], Result],
        *,
        cost: int = 1,
        deadline: float | None = None,
        timing: Timing | None = None,
    ) -> Result:
        """Runs work in the compute thread and returns its result.

        If the caller is cancelled, work that has not begun is dropped; work that has begun is told by `Abandoned`.

        Args:
            work: Called with an `Abandoned`; its exceptions are raised here.
            cost: Its cost in row-draws.
            deadline: Time on the scheduler's clock after which the answer is no longer wanted.
            timing: Gets the seconds in the queue and in computation.

        Raises:
            TooLargeError: The cost alone is above the bound.
            QueueFullError: Too much is pending.
            DeadlineError: The deadline came first.
            NotReadyError: The scheduler is closed.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work, cost, deadline, timing or Timing(), self.clock(), loop, loop.create_future())
        self._admit(job)
        try:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - self.clock())):
                result: Result = await job.future
                return result
        except TimeoutError:
            if job.future.done() and not job.future.cancelled():
                raise  # the work itself raised TimeoutError
            raise DeadlineError(self._too_late(job)) from None
        finally:
            job.abandoned.set()

    def _admit(self, job: _Job) -> None:
        if job.cost > self.max_pending_cost:
            raise TooLargeError(
                f"The request costs {job.cost} row-draws (rows x samples); this service takes at most "
                f"{self.max_pending_cost} at once. Send fewer rows, or ask for fewer samples."
            )
        with self._changed:
            if self._closed:
                raise NotReadyError("The service is shutting down.", retry_after=5)
            if self._pending >= self.max_pending or self._pending_cost + job.cost > self.max_pending_cost:
                wait = max(1, min(60, round(self._pending_cost * self._seconds_per_cost)))
                raise QueueFullError(
                    f"{self._pending} requests with {self._pending_cost} row-draws are pending, which is all "
                    "that this service takes on. Try again later.",
                    retry_after=wait,
                )
            self._pending += 1
            self._pending_cost += job.cost
            self._jobs.append(job)
            self._changed.notify()

    def _run(self, first: Callable[[], None] | None) -> None:
        if first is not None:
            first()
        while True:
            with self._changed:
                while not self._jobs and not self._closed:
                    self._changed.wait()
                if not self._jobs:
                    return
                job = self._jobs.popleft()
            try:
                self._compute(job)
            finally:
                with self._changed:
                    self._pending -= 1
                    self._pending_cost -= job.cost
            # Otherwise a finished job keeps its arrays alive until the next one comes.
            del job

    def _compute(self, job: _Job) -> None:
        begin = self.clock()
        job.timing.queue = begin - job.submitted
        if job.abandoned.is_set():
            return
        if job.deadline is not None and begin >= job.deadline:
            self._settle(job, error=DeadlineError(self._too_late(job)))
            return
        try:
            result = job.work(job.abandoned.is_set)
        except BaseException as error:  # the thread outlives any job; the caller gets the error
            self._settle(job, error=error)
        else:
            job.timing.compute = self.clock() - begin
            if job.cost > 1:
                recent = job.timing.compute / job.cost
                self._seconds_per_cost += 0.1 * (recent - self._seconds_per_cost)
            self._settle(job, result=result)

    def _settle(self, job: _Job, *, result: Any = None, error: BaseException | None = None) -> None:
        def settle() -> None:
            if job.future.done():
                return
            if error is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(error)

        # The loop is closed if the service stops while a job is still in computation.
        with contextlib.suppress(RuntimeError):
            job.loop.call_soon_threadsafe(settle)

    def _too_late(self, job: _Job) -> str:
        waited = 0.0 if job.deadline is None else job.deadline - job.submitted
        advice = "Send fewer rows, ask for fewer samples, or try later."
        return f"There was no answer within {waited:.3g} seconds. {advice}"
