"""The budget of a search: how much of it the next fit gets, in reference seconds or in seconds by the clock.

A budget that the user has set is in seconds by the clock. The default is in reference seconds (`model.fitting.work`),
the same on every machine.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from murho.model.training.quick import default_budget, quick_budget

if TYPE_CHECKING:
    from murho.model.training.options import TrainOptions
    from murho.model.training.time_to_finish import TimeToFinish

__all__ = ["SearchBudget"]

LEAST = 0.1
"""Least budget of a fit, seconds: it keeps the parameters of its first epochs, however late it is."""


class SearchBudget:
    """What a search may spend on its fits, and what they have taken.

    Attributes:
        by_clock: Whether the budget is in seconds by the clock; otherwise it is in reference seconds.
        of_full_search: The default budget without ``--quick``, reference seconds.
        work: Work of the fits so far, reference seconds.
        seconds: Duration of the fits so far, by the clock.
    """

    def __init__(
        self, options: TrainOptions, rows: int, *, began: float, to_finish: TimeToFinish | None = None
    ) -> None:
        """Begin with everything left.

        Args:
            options: Options of the training: ``--budget`` and ``--quick``.
            rows: Training rows, N.
            began: When a budget by the clock began, monotonic seconds.
            to_finish: What follows the search within the budget by the clock; None: nothing.
        """
        self.by_clock = options.budget is not None
        self.of_full_search = default_budget(rows)
        self.work = self.seconds = 0.0
        self._all = options.budget or (quick_budget(self.of_full_search) if options.quick else self.of_full_search)
        self._began, self._to_finish = began, to_finish
        self._scoring = 0.0  # seconds of the last scoring, by the clock

    @property
    def pace(self) -> float:
        """Seconds by the clock that a reference second has taken in the fits so far; 1 before the first."""
        return self.seconds / self.work if self.work else 1.0

    @property
    def late(self) -> bool:
        """Whether a budget by the clock has nothing left for trials: the full fit and its scores take the rest."""
        return self.by_clock and self._left_at(time.monotonic()) <= 0.0

    def of_fit(self, time_of_stage: float, time_left: float, began: float) -> float:
        """What the next fit may take, in the unit of the budget: its share of what is left.

        Args:
            time_of_stage: Its planned time, relative to a full fit.
            time_left: That of all planned fits that have not begun, this one among them.
            began: When it began, monotonic seconds.
        """
        budget = max(LEAST, self._left_at(began)) * time_of_stage / max(time_of_stage, time_left)
        return max(LEAST, budget - self._scoring) if self.by_clock else budget

    def spend(self, work: float, seconds: float, scoring: float | None = None) -> None:
        """Add a fit to what was spent.

        Args:
            work: Its work, with its scoring, reference seconds.
            seconds: Its duration, with its scoring, by the clock.
            scoring: Duration of its scoring; None: not known.
        """
        self.work += work
        self.seconds += seconds
        if scoring is not None:
            self._scoring = scoring

    def _left_at(self, moment: float) -> float:
        """What is left for fits, in the unit of the budget."""
        if not self.by_clock:
            return self._all - self.work
        kept_back = 0.0 if self._to_finish is None else self._to_finish.kept_back(self.pace)
        return self._all - (moment - self._began) - kept_back
