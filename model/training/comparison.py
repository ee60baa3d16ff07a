"""Whether one fit is better than another by more than chance, judged on the same held-out rows.

On a small table the losses of two trials differ by chance, by as much as most choices matter. Both trials are judged on
the same rows, and a row that is hard for one is hard for the other. So the difference is taken row by row, and its
standard error is that of a mean of N differences. The search takes the simpler of two choices unless the other one is
better by more than one standard error (the "one standard error rule" of Breiman et al. 1984, section 3.4.3, for pairs).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["is_better", "paired_difference"]


def paired_difference(first: Tensor, second: Tensor) -> tuple[float, float]:
    """Loss of one fit less the loss of another, and its standard error, in nats.

    The loss of a row is ``(nll + crps / c) / 2``, where c is the mean CRPS of both fits: to first order, means of it
    differ as `model.training.candidates.Attempt.loss` does.

    Args:
        first: NLL and CRPS of every row under the first fit, ``[2, N]``, as
            `model.fitting.cross_fit_rows.held_out_row_scores` returns them; of classes the log loss alone, ``[1, N]``.
        second: The same under the second fit, for the same rows.
    """
    if len(first) == 1:
        (differences,) = first - second
    else:
        (nll, crps), scale = first - second, 0.5 * (first[1] + second[1]).mean()
        differences = 0.5 * (nll + crps / scale)
    error = float(differences.std(correction=1)) / math.sqrt(len(differences)) if len(differences) > 1 else math.inf
    return float(differences.mean()), error


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
