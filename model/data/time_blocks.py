"""Blocks in time, for judging a network on rows that come after those it has learned from.

The oldest half of the rows is the base, from which all members learn. The rows after it are parted into consecutive
blocks of about the same number of rows. A member that judges a block has learned only from rows before it, as if the
block had not happened yet: random folds would let it learn from both sides of each row, and what it then knows of a row
from its neighbours in time nobody knows of tomorrow's row (Bergmeir & Benitez 2012, "On the use of cross-validation for
time series predictor evaluation"; the scheme is called a rolling or expanding origin).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from murho.model.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BASE", "ROW_ORDER", "TimeBlocks", "time_blocks"]

BASE = -1
"""Number of the block of the oldest rows, which all members learn from and none judges."""
BASE_SHARE = 0.5
ROW_ORDER = "row-order"
"""Value of ``--time`` for the order of the rows in the table."""


@dataclass(frozen=True, slots=True)
class TimeBlocks:
    """Blocks in time.

    Attributes:
        of_rows: Block of each row, from 0, or `BASE`, ``[N]``. Blocks are numbered from the oldest to the newest.
        ahead: How far ahead of the rows learned from a block reaches, in the unit of the times: the median over blocks.
    """

    of_rows: NDArray[np.int64]
    ahead: float


def time_blocks(times: NDArray[np.float64], count: int, *, base_share: float = BASE_SHARE) -> TimeBlocks:
    """Part rows into a base and consecutive blocks. Rows of the same time share a block.

    Args:
        times: Time of each row, ``[N]``; a row without a time (NaN) belongs to the base.
        count: Largest number of blocks. They are fewer if few times differ.
        base_share: Share of the rows in the base.

    Raises:
        OptionError: All rows have the same time.
    """
    present = np.sort(times[~np.isnan(times)])
    if not present.size or present[0] == present[-1]:
        raise OptionError("--time: all rows have the same time, so none comes after another: leave the option out")
    shares = base_share + (1.0 - base_share) * np.arange(count) / count
    # A block begins after the time that this share of the rows does not exceed.
    before = present[np.maximum(0, np.ceil(shares * present.size).astype(int) - 1)]
    ends = np.unique(before[before < present[-1]])
    if not ends.size:  # more than the base's share of the rows are of the last time
        ends = present[present < present[-1]][-1:]
    of_rows = np.where(np.isnan(times), BASE, np.searchsorted(ends, times, side="left") + BASE).astype(np.int64)
    last = np.append(ends[1:], present[-1])
    return TimeBlocks(of_rows, float(np.median(last - ends)))
