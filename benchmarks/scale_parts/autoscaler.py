"""The rule of Kubernetes' Horizontal Pod Autoscaler, for the simulation.

``wanted = ceil(replicas * metric / target)``, unless the ratio is within a tolerance of 1; a smaller number is taken
only if it was wanted for a whole window (Kubernetes documentation, "Horizontal Pod Autoscaling", algorithm details).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

__all__ = ["PodAutoscaler"]


@dataclass(slots=True)
class PodAutoscaler:
    """Scales by the mean number of pending requests of a replica.

    Attributes:
        target: Pending requests of a replica that are wanted.
        least: Fewest replicas.
        most: Most replicas.
        tolerance: Ratios this near to 1 change nothing.
        window: Seconds for which a smaller number must have been wanted.
        fastest: A call makes the number at most this many times as large; Kubernetes' default policy doubles it.
    """

    target: float
    least: int = 1
    most: int = 1_000
    tolerance: float = 0.1
    window: float = 300.0
    fastest: float = 2.0
    _wanted: deque[tuple[float, int]] = field(default_factory=deque)

    def __call__(self, time: float, pending: list[int]) -> int:
        """The number of replicas, from the time in seconds and the pending requests of each ready replica."""
        count = len(pending)
        ratio = sum(pending) / count / self.target
        wanted = count if abs(ratio - 1.0) <= self.tolerance else math.ceil(count * ratio)
        wanted = min(max(wanted, self.least), self.most, math.ceil(count * self.fastest))
        self._wanted.append((time, wanted))
        while self._wanted[0][0] < time - self.window:
            self._wanted.popleft()
        return max(number for _, number in self._wanted) if wanted < count else wanted
