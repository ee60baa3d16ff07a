"""How long work takes: seconds per row-draw of each model, learned from what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from murho.service.scheduling.jobs import ModelLike

__all__ = ["WorkRates"]

FIRST_SECONDS_PER_COST = 2e-7
"""Before anything was measured: a network of 2 x 64 units on one core."""
LARGE = 8192.0
"""Passes of less cost say little of the rate: most of their time is the same for every pass."""
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
        if cost < LARGE:
            return
        seen = self._seen.setdefault(model, _Seen())
        seen.cost = MEMORY * seen.cost + cost
        seen.seconds = MEMORY * seen.seconds + seconds

    def seconds_per_cost(self, model: ModelLike) -> float:
        """Returns the seconds that a row-draw of a model takes."""
        seen = self._seen.get(model)
        return FIRST_SECONDS_PER_COST if seen is None else seen.seconds / seen.cost
