"""Numbers that are hardly measurements: codes for a missing value, such as -200, and cells with a slip, such as 1e9.

Both are suspected and named, never changed: whoever owns the table knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["far_numbers", "suspected_code"]

CODES = frozenset(
    {-1.0, -9.0, 99.0, *(sign * code for sign in (-1.0, 1.0) for code in (999.0, 9999.0, 99999.0, 999999.0))}
    | {-99.0, -100.0, -200.0, -888.0, 888.0}
)
"""Numbers that people write for a missing value."""
FEWEST, LEAST_SHARE = 3, 0.005
"""Least number and share of the cells with a code."""
FEWEST_OTHERS = 3
"""Least number of other values."""
LARGE = -99.0
SPIKE, LEAST_SHARE_OF_SPIKE = 5, 0.02
"""A code near the others is so many times as frequent as any of them, and has at least such a share of the cells."""


def suspected_code(numbers: NDArray[np.float64]) -> float | None:
    """The least or the largest number if it is one of `CODES`, frequent, and far outside the others; None if not.

    Far outside is: further from the next number than the others are apart. A code below 0 is far outside, too, if it is
    a standard deviation of the others away, and these are never negative or it is at most `LARGE`; or if the others are
    never negative, and it is by far the most frequent number.

    Args:
        numbers: ``[N]``, without NaN.
    """
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) <= FEWEST_OTHERS:
        return None
    for place, others in ((0, values[1:]), (-1, values[:-1])):
        value, count = float(values[place]), int(counts[place])
        if value not in CODES or count < max(FEWEST, LEAST_SHARE * len(numbers)):
            continue
        gap = float(np.abs(others - value).min())
        if gap >= np.ptp(others):
            return value
        if value > 0.0 or (others.min() < 0.0 and value > LARGE):
            continue
        spike = count >= max(SPIKE * np.delete(counts, place).max(), LEAST_SHARE_OF_SPIKE * len(numbers))
        if gap >= np.std(numbers[numbers != value]) or (spike and others.min() >= 0.0):
            return value
    return None


MOST_FAR, TIMES_AS_FAR, FEWEST_NUMBERS = 3, 100.0, 20


def far_numbers(numbers: NDArray[np.float64]) -> NDArray[np.intp]:
    """Places of at most `MOST_FAR` numbers that lie `TIMES_AS_FAR` times as far from the median as all others do.

    Args:
        numbers: ``[N]``; NaN where one is missing.
    """
    present = np.flatnonzero(~np.isnan(numbers))
    if len(present) < FEWEST_NUMBERS:
        return present[:0]
    distances = np.abs(numbers[present] - np.median(numbers[present]))
    furthest = np.argsort(-distances, kind="stable")[: MOST_FAR + 1]
    far = distances[furthest]
    count = max((place for place in range(1, len(far)) if far[place - 1] >= TIMES_AS_FAR * far[place] > 0.0), default=0)
    return np.sort(present[furthest[:count]])
