"""What is pending, whether there is room for more, and how a refusal is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.service.errors import NotReadyError, QueueFullError, TooLargeError

if TYPE_CHECKING:
    from murho.service.engine.jobs import ModelLike
    from murho.service.engine.standing_queue import StandingQueue
    from murho.service.engine.work_rates import WorkRates

__all__ = ["Admission"]


class Admission:
    """The jobs that wait or are in computation, and their bounds. Not thread-safe.

    Attributes:
        max_pending: The most jobs.
        max_pending_cost: The most cost of all of them, in row-draws.
        pending: Number of jobs.
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
        self._rates, self._standing = rates, standing
        self._seconds = 0.0

    def admit(self, model: ModelLike, cost: float, rows: int) -> None:
        """Counts a job, if there is room for it.

        Raises:
            TooLargeError, QueueFullError, NotReadyError: See `require_room`.
        """
        self.require_room(cost, rows)
        self.pending += 1
        self.add(model, cost)

    def end(self, model: ModelLike, cost: float) -> None:
        """Counts a job that is over; `cost` is what is left of its own."""
        self.pending -= 1
        self.add(model, -cost)

    def add(self, model: ModelLike, cost: float) -> None:
        """Adds to the cost of what is pending, or takes away from it."""
        self.pending_cost += cost
        # Rates change while jobs wait, so what was added is not what is taken away; the empty queue sets it right.
        seconds = self._seconds + cost * self._rates.seconds_per_cost(model)
        self._seconds = max(0.0, seconds) if self.pending else 0.0

    def require_room(self, cost: float, rows: int) -> None:
        """Checks that a job of this cost and number of rows would be admitted now.

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
        if self._standing.too_long:
            raise QueueFullError(
                f"More comes than this service can compute: for {self._standing.standing:.0f} s the queue has not been "
                f"empty, and the {len(self._standing)} small requests in it take about {self._standing.seconds:.1f} s. "
                "Try again later.",
                retry_after=max(1, round(self._standing.seconds)),
            )
