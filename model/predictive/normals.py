"""Standard normal numbers for draws, coupled within a block so that averages over draws have less Monte Carlo error.

Number p of draw k of a seed is a function of (seed, k, p) alone. Only integers, and one conversion to float32 at the
end: the numbers are the same to the bit on every machine, and from the compiled code of
`model.predictive.compiled.passes`, of which this is the readable reference.

- The 32 random bits come from Philox4x32 with 7 rounds (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers:
  as easy as 1, 2, 3"), the fewest that pass all tests of BigCrush. The seed is the key, (p, k) the counter.
- One bit is the sign. The others are a probability ``(m + 1/2) / 2^32`` below one half, whose normal quantile is
  interpolated linearly in a table of whole numbers. Each octave of probabilities has 256 intervals of the same width,
  and so the error is below 2e-6 everywhere, out to the last quantile at 6.3.

The n draws of a member within a block of 64 draws are coupled: each is standard normal, any two have the correlation
``-1 / (n - 1)``, and the n of them sum to zero. After a whole block, averages of functions linear in the weights then
have no Monte Carlo error. For n = 2 these are antithetic draws. For larger n, quadratic functions such as the spread
lose almost nothing: their variance is ``n / (n - 1)`` times that of independent draws, against 2 times for pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BLOCK",
    "FRACTION_BITS",
    "INTERVAL_BITS",
    "KEY_STEPS",
    "LANES",
    "MULTIPLIERS",
    "ROUNDS",
    "SCALE_BITS",
    "PlaceInBlock",
    "coupled_normals",
    "effective_counts",
    "normal_table",
    "philox",
    "place_in_block",
    "standard_normals",
]


Words = NDArray[np.uint64]

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
ROUNDS = 7
LANES = 16
"""Number p of a draw is word ``p // 16 % 4`` of the counter ``16 (p // 64) + p % 16``: whole vectors at a time."""
INTERVAL_BITS = 8
FRACTION_BITS = 31 - INTERVAL_BITS
"""Bits of a probability after its leading one that choose the interval, and those that tell the place in it."""
SCALE_BITS = 28
"""The table has multiples of ``2^-28``."""
MANTISSA_BITS, BIAS = 52, 1023
WORD, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int], rounds: int = ROUNDS) -> list[Words]:
    """Four random words of 32 bits from four of a counter, in arrays of 64 bits.

    Args:
        counter: Arrays that broadcast to one shape.
        key: Two words.
        rounds: Number of rounds.
    """
    first, second, third, fourth = counter
    keys = list(key)
    for _ in range(rounds):
        of_first, of_third = (
            np.uint64(factor) * word for factor, word in zip(MULTIPLIERS, (first, third), strict=True)
        )
        first, second, third, fourth = (
            (of_third >> WORD) ^ second ^ np.uint64(keys[0]),
            of_third & LOW,
            (of_first >> WORD) ^ fourth ^ np.uint64(keys[1]),
            of_first & LOW,
        )
        keys = [(word + step) & 0xFFFFFFFF for word, step in zip(keys, KEY_STEPS, strict=True)]
    return [first, second, third, fourth]


@lru_cache(maxsize=1)
def normal_table() -> NDArray[np.int32]:
    """Upper normal quantiles of the ends of the intervals, in units of ``2^-28``; the last is that of one half, 0.

    They are rounded down, and none is within 1e-5 units of a whole number but the last, where double precision errs by
    1e-6 units: every correct library gives the same table.
    """
    octaves = np.arange(32).repeat(2**INTERVAL_BITS)
    places = np.tile(np.arange(2**INTERVAL_BITS), 32)
    import torch  # here: modules that are compiled need the steps below alone, and PyTorch takes seconds to import

    ends = torch.from_numpy(np.ldexp(1.0 + places / 2.0**INTERVAL_BITS, octaves - 33))
    quantiles = np.ldexp(-torch.special.ndtri(ends).numpy(), SCALE_BITS)
    return np.append(np.floor(quantiles), 0.0).astype(np.int32)


def standard_normals(seed: int, draws: NDArray[np.int64], out: NDArray[np.float32]) -> None:
    """Fill an array with independent standard normal numbers.

    Args:
        seed: 0 to 2^63 - 1.
        draws: Numbers of the draws, from 0, ``[n]``.
        out: The array, ``[n, P]``.
    """
    count = out.shape[1]
    blocks = -(-count // (4 * LANES))
    places, numbers = np.arange(blocks * LANES, dtype=np.uint64), draws.astype(np.uint64)[:, None]
    words = philox((places & LOW, places >> WORD, numbers & LOW, numbers >> WORD), (seed & 0xFFFFFFFF, seed >> 32))
    bits = np.stack(
        [np.broadcast_to(word, (len(out), len(places))).reshape(len(out), blocks, LANES) for word in words], 2
    )
    bits = bits.reshape(len(out), -1)[:, :count]
    # 2 m + 1 has at most 32 bits: its conversion is exact, and the bits of the result are exponent and fraction.
    fields = (((bits << np.uint64(1)) & LOW) | np.uint64(1)).astype(np.float64).view(np.int64)
    interval = (fields >> (MANTISSA_BITS - INTERVAL_BITS)) - (BIAS << INTERVAL_BITS)
    place = (fields >> (MANTISSA_BITS - INTERVAL_BITS - FRACTION_BITS)) & ((1 << FRACTION_BITS) - 1)
    table = normal_table().astype(np.int64)
    left = table[interval]
    size = left + ((table[interval + 1] - left) * place >> FRACTION_BITS)
    out[:] = np.where(bits >> np.uint64(31), -size, size)
    out *= np.float32(2.0**-SCALE_BITS)


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
