"""How many threads an answer is worth, and work of ours for all of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["FEW_PRODUCTS", "in_parts", "threads_for"]

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


def in_parts(count: int, least: int, work: Callable[[slice], None]) -> None:
    """Splits work between as many threads as PyTorch is set to, this one among them.

    Args:
        count: How many rows there are.
        least: How many of them are worth a thread.
        work: What is to be done to some of them; it must let other threads run.
    """
    threads = torch.get_num_threads()
    parts = min(threads, count // least)
    if parts <= 1:
        work(slice(0, count))
        return
    slices = [slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)]
    others = [_helpers(threads - 1).submit(work, rows) for rows in slices[1:]]
    work(slices[0])
    for other in others:
        other.result()


@lru_cache(maxsize=1)
def _helpers(threads: int) -> ThreadPoolExecutor:
    """Threads that sleep until there is work."""
    return ThreadPoolExecutor(threads, thread_name_prefix="murho-helper")
