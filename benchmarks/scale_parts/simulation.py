"""A discrete-event simulation of replicas that answer in flights: all requests that wait share one engine pass.

A replica does one flight at a time. A flight of k requests takes ``fixed + k each`` seconds of its core, and its
requests are answered at its end. That is a queue with batch service (Bailey 1954), with bounded batches.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["Costs", "Outcome", "closed_loop", "open_loop"]


@dataclass(frozen=True, slots=True)
class Costs:
    """Unit costs of one replica with one core.

    Attributes:
        fixed: Seconds of a flight, whatever it holds.
        each: Seconds of each request in it.
        largest: Most requests in a flight.
        queue: Most requests that wait; another one is refused.
        ready: Seconds from the start of a replica to its first answer.
    """

    fixed: float
    each: float
    largest: int = 256
    queue: int = 4096
    ready: float = 10.0

    def flight(self, requests: int) -> float:
        """Seconds of a flight."""
        return self.fixed + requests * self.each

    @property
    def most(self) -> float:
        """Requests a second with full flights, the most that a replica can do."""
        return self.largest / self.flight(self.largest)


@dataclass(slots=True)
class Outcome:
    """What became of the requests.

    Attributes:
        arrivals: When each answered request arrived, seconds.
        latencies: How long its answer took, seconds.
        refused: When requests were refused, because the queue of their replica was full.
        replicas: Times and numbers of ready replicas.
        flights: Number of flights.
        busy: Seconds in which replicas worked, all together.
    """

    arrivals: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    replicas: list[tuple[float, int]] = field(default_factory=list)
    flights: int = 0
    busy: float = 0.0

    def percentile(self, level: float, after: float = 0.0) -> float:
        """A percentile of the latencies of requests that arrived after a time, seconds."""
        values: NDArray[np.float64] = np.array(self.latencies)[np.array(self.arrivals) >= after]
        return float(np.percentile(values, level))


@dataclass(slots=True)
class _Replica:
    waiting: deque[float] = field(default_factory=deque)
    flying: list[float] = field(default_factory=list)

    @property
    def pending(self) -> int:
        return len(self.waiting) + len(self.flying)


def closed_loop(costs: Costs, clients: int, flights: int = 2_000) -> float:
    """Requests a second of clients that each send the next request when the last one is answered.

    All requests of a flight are answered at its end and come back at once, so the next flight takes them together with
    those that waited.

    Args:
        costs: Unit costs.
        clients: Number of clients.
        flights: How many flights to simulate.
    """
    flying, waiting, clock, answered = min(clients, costs.largest), 0, 0.0, 0
    waiting = clients - flying
    for _ in range(flights):
        clock += costs.flight(flying)
        answered += flying
        back = flying
        flying = min(waiting or back, costs.largest)
        waiting = waiting + back - flying
    return answered / clock


def open_loop(
    costs: Costs,
    rate: Callable[[float], float],
    seconds: float,
    *,
    replicas: int = 1,
    scale: Callable[[float, list[int]], int] | None = None,
    every: float = 15.0,
    seed: int = 0,
) -> Outcome:
    """Requests at random times (a Poisson process), each to the shorter queue of two replicas taken by chance.

    Args:
        costs: Unit costs.
        rate: Requests a second at a time.
        seconds: Time in which requests arrive.
        replicas: Ready replicas at the beginning.
        scale: The autoscaler: from the time and the pending requests of each ready replica to the wanted number, those
            that start included; None: the number stays.
        every: Seconds between two calls of the autoscaler.
        seed: Seed of arrivals and choices.
    """
    generator = np.random.default_rng(seed)
    outcome, order = Outcome(replicas=[(0.0, replicas)]), 0
    ready = [_Replica() for _ in range(replicas)]
    starting = 0
    events: list[tuple[float, int, str, _Replica | None]] = []

    def plan(time: float, kind: str, replica: _Replica | None = None) -> None:
        nonlocal order
        order += 1
        heapq.heappush(events, (time, order, kind, replica))

    def fly(time: float, replica: _Replica) -> None:
        count = min(len(replica.waiting), costs.largest)
        replica.flying = [replica.waiting.popleft() for _ in range(count)]
        outcome.flights += 1
        outcome.busy += costs.flight(count)
        plan(time + costs.flight(count), "landed", replica)

    def arrive(time: float) -> None:
        one, other = generator.integers(len(ready), size=2)
        replica = ready[one] if ready[one].pending <= ready[other].pending else ready[other]
        if len(replica.waiting) >= costs.queue:
            outcome.refused.append(time)
            return
        replica.waiting.append(time)
        if not replica.flying:
            fly(time, replica)

    plan(float(generator.exponential(1.0 / rate(0.0))), "arrival")
    if scale is not None:
        plan(every, "scale")
    while events:
        time, _, kind, replica = heapq.heappop(events)
        if kind == "arrival" and time < seconds:
            arrive(time)
            plan(time + float(generator.exponential(1.0 / rate(time))), "arrival")
        elif kind == "landed" and replica is not None:
            outcome.arrivals += replica.flying
            outcome.latencies += [time - began for began in replica.flying]
            replica.flying = []
            if replica.waiting:
                fly(time, replica)
        elif kind == "scale" and scale is not None and time < seconds:
            wanted = max(1, scale(time, [one.pending for one in ready]))
            for _ in range(wanted - len(ready) - starting):
                starting += 1
                plan(time + costs.ready, "ready")
            # A replica that goes answers what it has: it only gets nothing new.
            del ready[max(wanted, 1) :]
            outcome.replicas.append((time, len(ready)))
            plan(time + every, "scale")
        elif kind == "ready":
            starting -= 1
            ready.append(_Replica())
            outcome.replicas.append((time, len(ready)))
    return outcome
