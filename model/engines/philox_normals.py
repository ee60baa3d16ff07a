"""Standard normal numbers from a counter: number p of draw k of a seed is a function of (seed, k, p) alone.

Only integers, and one conversion to float32 at the end: the numbers are the same to the bit on every machine, and from
the compiled code of `model.engines.compiled.draw_kernel`, of which this is the readable reference.

- The 32 random bits come from Philox4x32 with 7 rounds (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers:
  as easy as 1, 2, 3"), the fewest that pass all tests of BigCrush. The seed is the key, (p, k) the counter.
- One bit is the sign. The others are a probability ``(m + 1/2) / 2^32`` below one half, whose normal quantile is
  interpolated linearly in a table of whole numbers. Each octave of probabilities has 256 intervals of the same width,
  and so the error is below 2e-6 everywhere, out to the last quantile at 6.3.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FRACTION_BITS",
    "INTERVAL_BITS",
    "KEY_STEPS",
    "LANES",
    "MULTIPLIERS",
    "ROUNDS",
    "SCALE_BITS",
    "normal_table",
    "philox",
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
