"""The limits of the target of a training: as the user gives them, and caps found in the data.

A cap shows as a value at the end of the range that is repeated as no other value near it: a survey that writes 500,000
for everything above, a gauge at its stop, amounts of which many are 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from murho.model.distributions.limits import Limits
from murho.model.errors import OptionError, TableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from murho.model.training.options import TrainOptions

__all__ = ["is_cap", "target_limits"]

FEWEST_ROWS, LEAST_SHARE = 10, 0.01
"""Least number and share of the rows at a cap."""
NEIGHBOURS = 20
"""A target has at least so many other values, and a cap is compared with so many of them, the nearest ones."""
TIMES_NEIGHBOURS, TIMES_NEIGHBOURS_OF_ZERO = 3, 2
"""A cap is so many times as frequent as the most frequent of its neighbours. For a least value of 0 fewer suffice."""


def target_limits(
    targets: NDArray[np.float64], name: str, options: TrainOptions, say: Callable[[str], None]
) -> Limits | None:
    """The limits of a training; None if there are none.

    Args:
        targets: ``[N]``, the target's unit; NaN where it is missing.
        name: Name of the target, for messages.
        options: Limits that the user gives; an infinite one: there is no limit on this side, whatever the data show.
        say: Gets a message about every cap found.

    Raises:
        OptionError: The minimum is not below the maximum.
        TableError: A target lies beyond a limit of the user; the row is named (from 1).
    """
    present = targets[~np.isnan(targets)]
    ends = {}
    for side, given, sign in (("minimum", options.target_minimum, -1.0), ("maximum", options.target_maximum, 1.0)):
        none = sign * math.inf
        if given is not None:
            beyond = sign * targets > sign * given
            if beyond.any():
                row = int(np.argmax(beyond))
                raise TableError(
                    f"target {name!r}, row {row + 1}: {targets[row]:g} lies beyond --target-{side} {given:g}"
                )
            ends[side] = given
        elif is_cap(sign * present):
            extreme = sign * float((sign * present).max())
            word = "largest" if sign > 0.0 else "least"
            say(
                f"found a cap: {int((present == extreme).sum()):,} of {len(present):,} rows have exactly {extreme:g}, "
                f"the {word} value of {name!r}, which no value near it comes close to: answers are limited to it; "
                f"--target-{side} {none} switches that off"
            )
            ends[side] = extreme
        else:
            ends[side] = none
    if math.isinf(ends["minimum"]) and math.isinf(ends["maximum"]):
        if ends["minimum"] > 0.0 or ends["maximum"] < 0.0:
            raise OptionError("--target-minimum and --target-maximum: no number lies between them")
        return None
    return Limits(**ends)


def is_cap(targets: NDArray[np.float64]) -> bool:
    """Whether the largest of the targets ``[N]`` is repeated as no other value near it is.

    The target must be continuous otherwise: with at least 20 other values.
    """
    values, counts = np.unique(targets, return_counts=True)
    if len(values) <= NEIGHBOURS or counts[-1] < max(FEWEST_ROWS, LEAST_SHARE * len(targets)):
        return False
    times = TIMES_NEIGHBOURS_OF_ZERO if values[-1] == 0.0 else TIMES_NEIGHBOURS
    return bool(counts[-1] >= times * counts[-1 - NEIGHBOURS : -1].max())
