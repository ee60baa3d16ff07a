"""Seeds of streams of random numbers that do not overlap."""

from __future__ import annotations

import numpy as np


def seed_for(seed: int, purpose: str) -> int:
    """Return the seed of one purpose, 64 bits: a child of NumPy's `SeedSequence`.

    Each seed and purpose has a stream of its own. With sums such as ``seed + 1``, neighbouring seeds would share
    streams. Seeds that differ only in their upper half would share them too, because PyTorch's generator on the CPU
    reads only the lower 32 bits.

    Args:
        seed: The seed of the whole, at least 0.
        purpose: What the numbers are for; another text gives another stream.
    """
    child = np.random.SeedSequence(seed, spawn_key=tuple(purpose.encode()))
    return int(child.generate_state(1, np.uint64)[0])
