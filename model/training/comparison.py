"""Whether one fit is better than another by more than chance, judged on the same held-out rows; and the best so far.

On a small table the losses of two trials differ by chance, by as much as most choices matter. Both trials are judged on
the same rows, and a row that is hard for one is hard for the other. So the difference is taken row by row, and its
standard error is that of a mean of N differences. The search takes the simpler of two choices unless the other one is
better by more than one standard error (the "one standard error rule" of Breiman et al. 1984, section 3.4.3, for pairs).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from murho.model.training.search_space import is_simpler

if TYPE_CHECKING:
    from torch import Tensor

    from murho.model.fitting.fit_types import Fit
    from murho.model.training.candidates import Attempt

__all__ = ["NARROW", "BestSoFar", "is_better", "mean_and_error", "paired_difference", "row_differences"]

NARROW = 0.05
"""Difference of two losses of trials, nats, below which later choices or longer fits may reverse the order."""


def paired_difference(first: Tensor, second: Tensor) -> tuple[float, float]:
    """Loss of one fit less the loss of another, and its standard error, in nats: the mean of `row_differences`.

    Args:
        first: Scores of every row under the first fit, as `row_differences` takes them.
        second: The same under the second fit, for the same rows.
    """
    return mean_and_error(row_differences(first, second))


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """The mean over N independent rows, ``[N]``, and its standard error; the error of one row is infinite."""
    error = float(values.std(correction=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return float(values.mean()), error


def row_differences(first: Tensor, second: Tensor) -> Tensor:
    """Loss of one fit less the loss of another for every row, ``[N]``, nats.

    The loss of a row is ``(nll + crps / c) / 2``, where c is the mean CRPS of both fits: to first order, means of it
    differ as `model.training.candidates.Attempt.loss` does.

    Args:
        first: NLL and CRPS of every row under the first fit, ``[2, N]``, as
            `model.fitting.cross_fit_rows.held_out_row_scores` returns them; of classes the log loss alone, ``[1, N]``.
        second: The same under the second fit, for the same rows.
    """
    differences = first - second
    if len(first) == 1:
        return differences[0]
    return 0.5 * (differences[0] + differences[1] / (0.5 * (first[1] + second[1]).mean()))


def is_better(challenger: Tensor, incumbent: Tensor, *, simpler: bool) -> bool:
    """Whether a challenger replaces the incumbent.

    Args:
        challenger: NLL and CRPS of every row, ``[2, N]``, or the log loss alone, ``[1, N]``.
        incumbent: The same under the incumbent.
        simpler: Whether the challenger is the simpler of the two. It then wins unless it is worse by more than one
            standard error. Otherwise it wins only if it is better by more than one.
    """
    difference, error = paired_difference(challenger, incumbent)
    return difference <= error if simpler else difference < -error


class BestSoFar:
    """The best fit of a search so far.

    Attributes:
        attempt: Its candidate and scores; there is none before the first `keep`.
        fit: The fit; None as long as no fit has scores.
    """

    attempt: Attempt

    def __init__(self, *, few: bool) -> None:
        """Begin without a fit.

        Args:
            few: Whether the training rows are few, so that one choice is compared row by row, see `is_better`.
        """
        self.fit: Fit | None = None
        self._few = few

    def keep(self, attempt: Attempt, fit: Fit | None, choice: str | None = None) -> bool:
        """Keep a fit if it is better than the best so far; returns whether it is.

        Args:
            attempt: The attempt.
            fit: Its fit; None if it failed.
            choice: The only field in which its candidate differs from the best one, if there is one such field.
        """
        better = self.fit is None or (fit is not None and self._is_better(attempt, choice))
        if better:
            self.replace(attempt, fit)
        return better

    def replace(self, attempt: Attempt, fit: Fit | None) -> None:
        """Keep a fit, whatever it scored."""
        self.attempt, self.fit = attempt, fit

    def _is_better(self, attempt: Attempt, choice: str | None) -> bool:
        best = self.attempt
        if not self._few or choice is None or attempt.rows is None or best.rows is None:
            return attempt.loss < best.loss
        simpler = is_simpler(choice, getattr(attempt.candidate, choice), getattr(best.candidate, choice))
        return is_better(attempt.rows, best.rows, simpler=simpler)
