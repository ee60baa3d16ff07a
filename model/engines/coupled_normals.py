"""Standard normal numbers for draws, coupled within a block so that averages over draws have less Monte Carlo error.

The n draws of a member within a block of 64 draws are coupled: each is standard normal, any two have the correlation
``-1 / (n - 1)``, and the n of them sum to zero. After a whole block, averages of functions linear in the weights then
have no Monte Carlo error. For n = 2 these are antithetic draws. For larger n, quadratic functions such as the spread
lose almost nothing: their variance is ``n / (n - 1)`` times that of independent draws, against 2 times for pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from murho.model.engines.philox_normals import standard_normals

__all__ = [
    "BLOCK",
    "PlaceInBlock",
    "coupled_normals",
    "effective_counts",
    "place_in_block",
]

BLOCK = 64
"""Draws in a block; the draws of different blocks are independent."""
TOGETHER = 2**15
"""Numbers that are made together: enough for short calls, and few enough for the processor's cache."""


@dataclass(frozen=True, slots=True)
class PlaceInBlock:
    """The place of a draw among the draws that it is coupled to.

    Attributes:
        member: Member of the draw.
        before: Number of earlier draws of the same member in the block.
        size: n, the number of draws of the member in the whole block.
    """

    member: int
    before: int
    size: int


def place_in_block(draw: int, members: int) -> PlaceInBlock:
    """The place of a draw (numbered from 0) where draws go round M members."""
    member, start = draw % members, draw - draw % BLOCK
    first = start + (member - start) % members  # the member's first draw in the block
    return PlaceInBlock(member, (draw - first) // members, 1 + (start + BLOCK - 1 - first) // members)


def coupled_normals(seed: int, samples: int, members: int, count: int, *, start: int = 0) -> np.ndarray:
    """The standard normal numbers of S draws; those of draw k depend on (seed, k, M) alone.

    Given the earlier ones, number i (from 0) of n exchangeable normals with correlation ``-1 / (n - 1)`` has the
    mean ``-sum / (n - i)`` and the variance ``n (n - 1 - i) / ((n - 1) (n - i))``; the last is minus the sum.

    Args:
        seed: 0 to 2^63 - 1.
        samples: S, at least 1.
        members: M; draw k is of member ``k mod M``.
        count: P, the numbers per draw.
        start: Number of the first draw, a multiple of `BLOCK`: draws of different blocks are independent.

    Returns:
        ``[S, P]``, float32, each row standard normal.

    Raises:
        ValueError: ``start`` is not a multiple of `BLOCK`.
    """
    if start % BLOCK:
        raise ValueError(f"draws start at a multiple of {BLOCK}, not at {start}")
    normals = np.empty((samples, count), dtype=np.float32)
    at_a_time = max(1, TOGETHER // count)
    for first in range(0, samples, at_a_time):
        some = normals[first : first + at_a_time]
        standard_normals(seed, np.arange(start + first, start + first + len(some)), some)
    sums = np.zeros((members, count), dtype=np.float32)
    for draw, row in enumerate(normals, start=start):
        place = place_in_block(draw, members)
        size, left, total = place.size, place.size - place.before, sums[place.member]
        if place.before == 0:
            total[:] = row
        elif left == 1:
            np.negative(total, out=row)
        else:
            row *= np.float32(math.sqrt(size * (left - 1) / ((size - 1) * left)))
            row -= total * np.float32(1.0 / left)
            total += row
    return normals


def effective_counts(samples: int, members: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number of draws of each member, and the variance of sums over them, in variances of one draw.

    Args:
        samples: S.
        members: M.

    Returns:
        The number of draws, ``[M]``; the variance of the sum of a function linear in the weights, ``[M]`` (the sum
        over the draws' correlation matrix, 0 after whole blocks); and that of a quadratic function, ``[M]`` (the sum
        of the squares of its entries). Without coupling all three would be equal.
    """
    counts, linear, quadratic = np.zeros(members), np.zeros(members), np.zeros(members)
    for draw in range(samples):
        place = place_in_block(draw, members)
        correlation = -1.0 / (place.size - 1) if place.size > 1 else 0.0
        counts[place.member] += 1.0
        linear[place.member] += 1.0 + 2.0 * place.before * correlation
        quadratic[place.member] += 1.0 + 2.0 * place.before * correlation**2
    return counts, linear.clip(0.0), quadratic
