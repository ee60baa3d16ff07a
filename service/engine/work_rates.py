"""How long work takes: seconds per row-draw of each model, learned from what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from murho.service.engine.jobs import ModelLike

__all__ = ["WorkRates"]

FIRST_SECONDS_PER_COST = 2e-7
"""Before anything was measured: a network of 2 x 64 units on one core."""
LARGE = 8192.0
"""A pass of less cost only shows that work isn't slower than this: most of its time is the same for every pass."""
MEMORY = 0.9
"""Weight of all earlier passes at each new one."""


@dataclass(slots=True)
class _Seen:
    cost: float = 0.0
    seconds: float = 0.0


class WorkRates:
    """Learns the rate of each model. It forgets a model with the model itself."""

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[ModelLike, _Seen] = WeakKeyDictionary()

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
        if cost < LARGE and (seen is None or seconds >= cost * self.seconds_per_cost(model)):
            return
        if seen is None:
            seen = self._seen[model] = _Seen()
        seen.cost = MEMORY * seen.cost + cost
        seen.seconds = MEMORY * seen.seconds + seconds

    def seconds_per_cost(self, model: ModelLike) -> float:
        """Returns the seconds that a row-draw of a model takes."""
        seen = self._seen.get(model)
        return FIRST_SECONDS_PER_COST if seen is None else seen.seconds / seen.cost
