"""What a training knows beside its checkpoint: the fits, and the predictions for held-out rows. A report shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns
    from murho.model.evaluation.held_out_rows import HeldOutRows
    from murho.model.training.candidates import Attempt

__all__ = ["Evidence"]


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Rows and fits of a training; in memory alone, never part of ``model.json``.

    Attributes:
        columns: Canonical columns of the features, ``[N]`` each, of the rows with a target.
        targets: ``[N]``, the target's unit.
        row_numbers: Number of each row in the user's table, from 1, ``[N]``.
        learned: Rows that the networks have learned from, of the N.
        held_out: Predictions for the held-out rows.
        attempts: All fits of the search, in order.
        chosen: The fit that was kept, one of the attempts.
    """

    columns: Columns
    targets: NDArray[np.float64]
    row_numbers: NDArray[np.int64]
    learned: NDArray[np.int64]
    held_out: HeldOutRows
    attempts: tuple[Attempt, ...]
    chosen: Attempt
