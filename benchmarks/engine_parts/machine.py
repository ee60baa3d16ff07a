"""The rates of this machine, to compare times with: float32 matrix products and copies in memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["copy_rate", "product_rate"]


def product_rate(size: int = 2048, repeats: int = 3) -> float:
    """The best rate of float32 matrix products with PyTorch's threads.

    Args:
        size: Both matrices are ``[size, size]``.
        repeats: Number of timed products.

    Returns:
        Floating-point operations per second; a multiplication and an addition count as two.
    """
    left, right = torch.rand(size, size), torch.rand(size, size)
    product = torch.empty(size, size)
    return 2.0 * size**3 / _best(lambda: torch.mm(left, right, out=product), repeats)


def copy_rate(size: int = 2**28, repeats: int = 3) -> float:
    """The best rate of a copy from memory to memory with PyTorch's threads.

    Args:
        size: Bytes; many times the size of the caches.
        repeats: Number of timed copies.

    Returns:
        Bytes per second, read and written.
    """
    source = torch.ones(size // 4)
    target = torch.zeros_like(source)
    return 2.0 * source.nbytes / _best(lambda: target.copy_(source), repeats)


def _best(call: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
