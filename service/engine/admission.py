"""What waits for the compute thread: who is admitted, how long work takes, and whose turn is next."""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from murho.service.errors import NotReadyError, QueueFullError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.service.engine.jobs import Job, ModelLike

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
        """Learn from one pass.

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

    def set(self, model: ModelLike, seconds: float) -> None:
        """Take the seconds of a row-draw of a model from whoever has measured them."""
        self._seen[model] = 1.0, seconds

    def seconds(self, model: ModelLike, cost: float) -> float:
        """Return the seconds that work of a model takes."""
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


class Pending:
    """Work that is pending: of this process, and of all front ends of the service.

    Args:
        shared: Requests, cost and seconds of each front end, in memory that they share; None: there is one.
        own: Number of this front end.
    """

    def __init__(self, shared: memoryview[float] | None = None, own: int = 0) -> None:
        self._all: memoryview[float] | list[float] = [0.0] * 3 if shared is None else shared
        self._own = 3 * own
        self.clear()

    @property
    def requests(self) -> int:
        """Number of requests of all front ends."""
        return int(sum(self._all[0::3]))

    @property
    def cost(self) -> float:
        """Their cost, in row-draws."""
        return sum(self._all[1::3])

    @property
    def seconds(self) -> float:
        """The seconds that they take."""
        return sum(self._all[2::3])

    def add(self, requests: int, cost: float, seconds: float) -> None:
        """Count work of this process as pending; or as done, where it is negative."""
        for place, change in enumerate((requests, cost, seconds), self._own):
            self._all[place] += change
        if self._all[self._own] <= 0.0:
            self.clear()  # rounding errors end here

    def clear(self) -> None:
        """Nothing of this process is pending any more."""
        for place in range(self._own, self._own + 3):
            self._all[place] = 0.0


@dataclass(slots=True, eq=False)
class Admission:
    """What is admitted and has no answer so far, within its bounds. Not thread-safe: the event loop counts.

    A queue of small requests that empties now and then is a burst: everything in it is wanted and will soon be done.
    One that has not been empty for `STANDING_SECONDS` stands: more comes than can be computed, so a longer queue
    answers no more requests, but answers each of them later (Nichols and Jacobson 2012, "Controlling queue delay";
    Maurer 2015, "Fail at scale"). So it is kept short, and what is answered is answered soon.

    Attributes:
        max_pending: The most requests.
        max_pending_cost: The most cost of all of them, in row-draws.
        rates: How long the work of each model takes.
        standing: Tells the seconds of work in the queue of small requests, and since when it has not been empty.
        max_standing_wait: Seconds of work that may wait in it once it stands.
        clock: Monotonic seconds.
        work: What is pending.
        closed: Whether nothing more is admitted.
    """

    max_pending: int
    max_pending_cost: float
    rates: WorkRates
    standing: Callable[[], tuple[float, float]]
    max_standing_wait: float
    clock: Callable[[], float]
    work: Pending = field(default_factory=Pending)
    closed: bool = False

    @property
    def pending(self) -> int:
        """Number of requests that are pending."""
        return self.work.requests

    @property
    def pending_cost(self) -> float:
        """Their cost, in row-draws."""
        return self.work.cost

    def admit(self, model: ModelLike, cost: float, rows: int) -> Admitted:
        """Count a request, if there is room for it; return what `done` and `end` take.

        Raises:
            TooLargeError, QueueFullError, NotReadyError: See `require_room`.
        """
        self.require_room(cost, rows)
        admitted = Admitted(0.0, 0.0, self.rates.seconds(model, 1.0))
        self._add(admitted, cost, 1)
        return admitted

    def extend(self, admitted: Admitted, cost: float) -> None:
        """Count further work of a request that is admitted, if there is room for it.

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

    def _add(self, admitted: Admitted, cost: float, requests: int = 0) -> None:
        admitted.cost += cost
        admitted.left += cost
        self.work.add(requests, cost, cost * admitted.rate)

    def done(self, admitted: Admitted, cost: float) -> None:
        """Count a part of the work of a request as done."""
        cost = min(cost, admitted.left)
        admitted.left -= cost
        self.work.add(0, -cost, -cost * admitted.rate)

    def end(self, admitted: Admitted) -> None:
        """Count a request that is over."""
        self.work.add(-1, -admitted.left, -admitted.left * admitted.rate)
        admitted.left = 0.0

    def require_room(self, cost: float = 0.0, rows: int = 1) -> None:
        """Check that a request of this cost and number of rows would be admitted now.

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
        wait, since = self.standing()
        if wait > self.max_standing_wait and (standing := self.clock() - since) >= STANDING_SECONDS:
            raise QueueFullError(
                f"More comes than this service can compute: for {standing:.0f} s the queue has not been empty, and the "
                f"small requests in it take about {wait:.1f} s. Try again later.",
                retry_after=max(1, round(wait)),
            )

    def _full(self) -> QueueFullError:
        return QueueFullError(
            f"{self.pending} requests with {self.pending_cost:.0f} row-draws are pending, which is all that this "
            f"service takes on; they take about {self.work.seconds:.1f} s. Try again later.",
            retry_after=max(1, min(3600, round(self.work.seconds))),
        )


class FairQueue:
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
        """Give a job its place.

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
        """Count a job that waits no more; one that did not wait is fine, too."""
        self.seconds -= job.waiting
        job.waiting = 0.0

    def take(self, room: Callable[[Job], float]) -> list[Job]:
        """Remove and return the job whose turn it is and the next ones of its lane. Jobs that are over are dropped.

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
