"""Whose turn it is: start-time fair queueing of jobs, so that no caller and no model can crowd out the others.

Every job gets a start tag, in units of cost: the larger of the current virtual time and the finish tag of the same
caller's previous job for the same model. Its finish tag is the start tag plus its cost. The job with the lowest start
tag is next, and the virtual time is the start tag of the last job taken (Goyal, Vin and Cheng 1996, "Start-time fair
queuing"). A caller with one job is thus served before the second job of a caller with a thousand.

Jobs of one lane (`Job.lane`) can be answered in one pass, so they are taken together.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.service.engine.jobs import Job

__all__ = ["Turns"]


class Turns:
    """The waiting jobs of one class, in the order of their turns. Not thread-safe."""

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

    def head(self) -> Job | None:
        """Returns the job whose turn it is; None if none waits."""
        return min(lane[0] for lane in self._lanes.values())[2] if self._lanes else None

    def take(self, room: float, cost: Callable[[Job], float]) -> list[Job]:
        """Removes and returns the job whose turn it is and the next ones of its lane. Jobs that are over are dropped.

        Args:
            room: The most cost of all of them; the first job is taken whatever it costs.
            cost: Returns the cost of a job's turn.

        Returns:
            Jobs of one lane in the order of their turns; none if no job waits.
        """
        while self._lanes:
            name, lane = min(self._lanes.items(), key=lambda item: item[1][0][:2])
            taken: list[Job] = []
            while lane and (lane[0][2].over or not taken or cost(lane[0][2]) <= room):
                start, _, job = heapq.heappop(lane)
                if job.over:
                    continue
                self._now = max(self._now, start)
                room -= cost(job)
                taken.append(job)
            if not lane:
                del self._lanes[name]
            if not self._lanes:  # nobody waits, so nobody has to be remembered
                self._finish.clear()
                self._now = 0.0
            if taken:
                return taken
        return []
