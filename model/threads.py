"""How many threads an answer is worth."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FEW_PRODUCTS", "threads_for"]

FEW_PRODUCTS = 2**23
"""Weights times rows up to which one thread is done before others are awake.

With two that sleep while they wait, each of MKL's functions takes 13 us more, until it has some 60,000 values.
"""


@contextmanager
def threads_for(products: int) -> Iterator[None]:
    """One thread for a little work, as many as PyTorch is set to for more.

    Args:
        products: Multiplications of the forward pass: weights of all draws, times rows.
    """
    before = torch.get_num_threads()
    if before == 1 or products > FEW_PRODUCTS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
