"""The queue in front of the engine: whether there is room for more work, how long work takes, and whose turn it is."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from murho.service.errors import NotReadyError, QueueFullError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.service.engine.jobs import Job, ModelLike

__all__ = ["Admission", "Admitted", "StandingQueue", "Turns", "WorkRates"]

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


class StandingQueue:
    """How much work waits in the queue of small requests, and whether that queue stands. Not thread-safe.

    A queue that empties now and then is a burst: everything in it is wanted and will soon be done. One that has not
    been empty for `STANDING_SECONDS` stands: more comes than can be computed, so a longer queue answers no more
    requests, but answers each of them later (Nichols and Jacobson 2012, "Controlling queue delay"; Maurer 2015, "Fail
    at scale"). So it is kept short, and what is answered is answered soon.

    Attributes:
        seconds: Work that waits, by what work of its model took when it came.

    Args:
        most: Seconds of work that may wait in a queue that stands.
        clock: Monotonic seconds.
    """

    def __init__(self, most: float, clock: Callable[[], float]) -> None:
        self.most, self.seconds = most, 0.0
        self._clock = clock
        self._waiting: dict[Job, float] = {}
        self._since = 0.0

    def add(self, job: Job, seconds: float) -> None:
        """Counts a job that begins to wait."""
        if not self._waiting:
            self._since = self._clock()
        self._waiting[job] = seconds
        self.seconds += seconds

    def remove(self, job: Job) -> None:
        """Counts a job that waits no more; one that did not wait is fine, too."""
        self.seconds -= self._waiting.pop(job, 0.0)
        if not self._waiting:
            self.seconds = 0.0  # rounding errors end here

    def require_short(self) -> None:
        """Checks that the queue doesn't stand, or is as short as such a queue has to be.

        Raises:
            QueueFullError: It is longer.
        """
        if self.seconds > self.most and (standing := self._clock() - self._since) >= STANDING_SECONDS:
            raise QueueFullError(
                f"More comes than this service can compute: for {standing:.0f} s the queue has not been empty, and the "
                f"{len(self._waiting)} small requests in it take about {self.seconds:.1f} s. Try again later.",
                retry_after=max(1, round(self.seconds)),
            )


@dataclass(slots=True, eq=False)
class Admitted:
    """The work of one request that is admitted.

    Attributes:
        left: Its cost, but for what is computed already, in row-draws.
        rate: Seconds that a row-draw took when it was admitted.
    """

    left: float
    rate: float


class Admission:
    """What is admitted and has no answer so far, within its bounds. Not thread-safe: the event loop counts.

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
        standing: The queue of small requests.
    """

    def __init__(self, max_pending: int, max_pending_cost: float, rates: WorkRates, standing: StandingQueue) -> None:
        self.max_pending, self.max_pending_cost = max_pending, max_pending_cost
        self.pending, self.pending_cost, self.closed = 0, 0.0, False
        self._rates, self._standing, self._seconds = rates, standing, 0.0

    def admit(self, model: ModelLike, cost: float, rows: int) -> Admitted:
        """Counts a request, if there is room for it; returns what `done` and `end` take.

        Raises:
            TooLargeError, QueueFullError, NotReadyError: See `require_room`.
        """
        self.require_room(cost, rows)
        admitted = Admitted(cost, self._rates.seconds(model, 1.0))
        self.pending += 1
        self.pending_cost += cost
        self._seconds += cost * admitted.rate
        return admitted

    def done(self, admitted: Admitted, cost: float) -> None:
        """Counts a part of the work of a request as done."""
        cost = min(cost, admitted.left)
        admitted.left -= cost
        self.pending_cost -= cost
        self._seconds -= cost * admitted.rate

    def end(self, admitted: Admitted) -> None:
        """Counts a request that is over."""
        self.pending -= 1
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
            raise QueueFullError(
                f"{self.pending} requests with {self.pending_cost:.0f} row-draws are pending, which is all that this "
                f"service takes on; they take about {self._seconds:.1f} s. Try again later.",
                retry_after=max(1, min(3600, round(self._seconds))),
            )
        self._standing.require_short()


class Turns:
    """The waiting jobs of one class, in the order of their turns. Not thread-safe.

    Start-time fair queueing: no caller and no model can crowd out the others. Every job gets a start tag, in units of
    cost: the larger of the current virtual time and the finish tag of the same caller's previous job for the same
    model. Its finish tag is the start tag plus its cost. The job with the lowest start tag is next, and the virtual
    time is the start tag of the last job taken (Goyal, Vin and Cheng 1996, "Start-time fair queuing"). A caller with
    one job is thus served before the second job of a caller with a thousand.

    Jobs of one lane (`Job.lane`) can be answered in one pass, so they are taken together.
    """

    def __init__(self) -> None:
        self._lanes: dict[object, list[tuple[float, int, Job]]] = {}
        self._finish: dict[tuple[str, str], float] = {}
        self._now = 0.0
        self._numbers = count()

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def add(self, job: Job, cost: float) -> None:
        """Gives a job its place.

        Args:
            job: The job.
            cost: The cost of what will be computed at its turn.
        """
        flow = (job.caller, job.model.name)
        start = max(self._now, self._finish.get(flow, 0.0))
        self._finish[flow] = start + cost
        heapq.heappush(self._lanes.setdefault(job.lane, []), (start, next(self._numbers), job))

    def take(self, room: Callable[[Job], float]) -> list[Job]:
        """Removes and returns the job whose turn it is and the next ones of its lane. Jobs that are over are dropped.

        Args:
            room: Returns the most cost of all of them for the first job, which is taken whatever it costs.

        Returns:
            Jobs of one lane in the order of their turns; none if no job waits.
        """
        while self._lanes:
            name, lane = min(self._lanes.items(), key=lambda item: item[1][0][:2])
            taken: list[Job] = []
            left = 0.0
            while lane and (lane[0][2].over or not taken or lane[0][2].cost <= left):
                start, _, job = heapq.heappop(lane)
                if job.over:
                    continue
                self._now = max(self._now, start)
                left = (left if taken else room(job)) - job.cost
                taken.append(job)
            if not lane:
                del self._lanes[name]
            if not self._lanes:  # nobody waits, so nobody has to be remembered
                self._finish.clear()
                self._now = 0.0
            if taken:
                return taken
        return []
