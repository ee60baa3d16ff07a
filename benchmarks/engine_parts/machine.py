"""What this machine can do: the rate of its matrix products and of its memory, as yardsticks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["copy_rate", "product_rate"]


def product_rate(size: int = 2048, repeats: int = 3) -> float:
    """Of float32 matrix products with the threads that torch has: the best of some.

    Args:
        size: Both matrices are ``[size, size]``.
        repeats: How many are timed.

    Returns:
        Floating-point operations a second; a multiplication and an addition are two.
    """
    left, right = torch.rand(size, size), torch.rand(size, size)
    product = torch.empty(size, size)
    return 2.0 * size**3 / _best(lambda: torch.mm(left, right, out=product), repeats)


def copy_rate(size: int = 2**28, repeats: int = 3) -> float:
    """Of a copy from memory to memory with the threads that torch has: the best of some.

    Args:
        size: Bytes; much more than the caches hold.
        repeats: How many are timed.

    Returns:
        Bytes a second, those read and those written.
    """
    source = torch.ones(size // 4)
    target = torch.zeros_like(source)
    return 2.0 * source.nbytes / _best(lambda: target.copy_(source), repeats)


def _best(call: Callable[[], object], repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return min(taken)
