"""The number of threads for an answer, and row-wise work split between threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["FEW_PRODUCTS", "in_parts", "threads_for", "use_threads"]

FEW_PRODUCTS = 2**23
"""Products (weights times rows) up to which one thread finishes before a second one wakes up.

With two threads that sleep while they wait, each MKL function takes 13 us more, up to about 60,000 values.
"""

PARTS_PER_THREAD = 4
"""Parts of the rows for each thread: one that loses its processor to other work for a while leaves some to the rest."""


def use_threads(count: int) -> None:
    """Set PyTorch's number of threads for the calling thread alone.

    A thread takes the number that was set last in any thread when PyTorch first needs it there. So it is asked first:
    otherwise a number set meanwhile by another thread would replace the one set here.
    """
    torch.get_num_threads()
    torch.set_num_threads(count)


@contextmanager
def threads_for(products: int) -> Iterator[None]:
    """Use one thread for small work, and PyTorch's number of threads for larger work.

    Args:
        products: Multiplications of the forward pass: number of weights in all draws, times rows.
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
    """Share rows out among PyTorch's number of threads, this thread included, in parts of the same size.

    Each thread takes the next part when it is done with one.

    Args:
        count: Number of rows.
        least: Smallest number of rows for which a further thread is used.
        work: Processes one slice of the rows; it must release the interpreter lock.
    """
    threads = torch.get_num_threads()
    used = min(threads, count // least)
    if used <= 1:
        work(slice(0, count))
        return
    parts = min(PARTS_PER_THREAD * used, count // least)
    slices = iter([slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)])

    def take_turns() -> None:
        for rows in slices:
            work(rows)

    others = [_helpers(threads - 1).submit(take_turns) for _ in range(used - 1)]
    take_turns()
    for other in others:
        other.result()


@lru_cache(maxsize=1)
def _helpers(threads: int) -> ThreadPoolExecutor:
    """A pool of threads that sleep until they get work."""
    return ThreadPoolExecutor(threads, thread_name_prefix="murho-helper")
