"""What calibration and report will take by the clock, so that a training with a budget in seconds ends in time.

How much work they are is known in advance: so many reference seconds (`model.fitting.work`). How long a reference
second takes on this machine, and beside whatever else it does, the fits tell.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TimeToFinish"]

REFERENCE_SECONDS, REFERENCE_SECONDS_A_ROW = 2.5, 0.002
"""Work after the search: loading the compiled engine and drawing the report; calibration, for each held-out row."""
LEAST_SHARE, MOST_SHARE = 0.2, 0.5
"""Limits of what is kept back, as shares of the budget."""
TOLERANCE = 0.1
"""Share of the budget that the end may take beyond it, before it calibrates on fewer rows."""


@dataclass(frozen=True, slots=True)
class TimeToFinish:
    """The end of a training with a budget.

    Attributes:
        budget: The budget in seconds by the clock.
        rows: Rows that calibrate and score, n.
    """

    budget: float
    rows: int

    def kept_back(self, pace: float) -> float:
        """The seconds by the clock that the search leaves to the end.

        Args:
            pace: Seconds by the clock for a reference second.
        """
        seconds = pace * (REFERENCE_SECONDS + REFERENCE_SECONDS_A_ROW * self.rows)
        return min(MOST_SHARE * self.budget, max(LEAST_SHARE * self.budget, seconds))

    def rows_in_time(self, spent: float, pace: float, *, fewest: int) -> int:
        """How many rows can calibrate and score in what is left of the budget.

        Args:
            spent: Seconds by the clock since the training began.
            pace: Seconds by the clock for a reference second.
            fewest: The fewest rows, however late it is.
        """
        left = ((1.0 + TOLERANCE) * self.budget - spent) / pace - REFERENCE_SECONDS
        return min(self.rows, max(fewest, int(left / REFERENCE_SECONDS_A_ROW)))
