"""Numbers that stand for dates: seconds since 1970 (epoch), or numbers such as 20201231."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.date_readings import COUNTS, CountedDateReading

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["counted_dates"]

_NAMES_OF_TIMES = re.compile(
    r"date|time|stamp|epoch|(?:^|_)(?:day|ts|dt|t|at|on|when|created|updated|modified|since|until|utc)(?:$|_)|_at$|_ts$",
    re.IGNORECASE,
)
"""Names of columns that are likely about time."""
_NAMED, _UNNAMED = (1e8, 4.1e9), (1e9, 2e9)
"""Least and largest seconds since 1970 of a column whose name tells of time (1973 to 2099), and of another one (2001 to
2033): few amounts all lie in so narrow a range."""
_DIFFERENT_UNNAMED = 20
"""A column whose name does not tell of time needs as many different numbers."""


def counted_dates(numbers: npt.NDArray[np.float64], name: str, *, declared: bool = False) -> CountedDateReading | None:
    """How the numbers of a column stand for dates; None if they don't seem to.

    Args:
        numbers: The column, ``[N]``, with NaN for missing cells.
        name: The column's name.
        declared: Whether the user says that they are dates.
    """
    present = numbers[~np.isnan(numbers)]
    if present.size == 0 or not np.isfinite(present).all():
        return None
    named = declared or _NAMES_OF_TIMES.search(name) is not None
    least, largest = float(present.min()), float(present.max())
    if least >= 19_000_101 and largest <= 21_001_231:
        days = np.unique(present)
        return CountedDateReading("yyyymmdd") if (named or days.size >= 10) and _are_days(days) else None
    bounds = _NAMED if named else _UNNAMED
    for count, factor in COUNTS.items():
        if bounds[0] * factor <= least and largest <= bounds[1] * factor:
            if not named and np.unique(present).size < _DIFFERENT_UNNAMED:
                return None
            return CountedDateReading(count)
    return None


def _are_days(numbers: npt.NDArray[np.float64]) -> bool:
    reading = CountedDateReading("yyyymmdd")
    try:
        for number in numbers.tolist():
            reading.days(number)
    except ValueError:
        return False
    return True
