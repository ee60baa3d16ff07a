"""Compiled code for the processor: when it is loaded, and what it is used for.

Answers alone use it, in `compiled_code`. Whether it was loaded changes last digits, and a fit must come out the same
to the bit, whatever its process has done besides. Loading takes a second and 120 MiB; where it was never compiled,
twenty seconds. So the first second's worth of answers is left to PyTorch, or `load` is called, as a service does at
its start.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["LOADING", "Kernels", "at_hand", "compiled_code", "load"]

LOADING = 2**26
"""Components times rows times levels of which PyTorch finds the percentiles while compiled code is loaded."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """Compiled functions.

    Attributes:
        answer_rows: `model.engines.compiled.answer_kernel.answer_rows`.
        forward_draws: `model.engines.compiled.forward_kernel.forward_draws`; None where the products of matrices
            that it calls are missing.
        silu: `model.engines.compiled.silu_kernel.silu`.
    """

    answer_rows: Callable[..., None]
    forward_draws: Callable[..., None] | None
    silu: Callable[..., None]


@dataclass(slots=True)
class _Process:
    """What this process has loaded.

    Attributes:
        kernels: Compiled code, once it is loaded.
        spent: Components times rows times levels that were left to PyTorch.
    """

    kernels: Kernels | None = None
    spent: int = 0


_PROCESS = _Process()
_IN_USE: ContextVar[Kernels | None] = ContextVar("compiled code in use", default=None)


def load() -> Kernels:
    """Loads compiled code, and compiles it if that was never done on this machine."""
    if _PROCESS.kernels is None:
        from murho.model.engines.compiled.answer_kernel import answer_rows
        from murho.model.engines.compiled.matrix_products import products_at_hand
        from murho.model.engines.compiled.silu_kernel import silu

        forward = _forward_draws() if products_at_hand() else None
        _PROCESS.kernels = Kernels(answer_rows, forward, silu)
    return _PROCESS.kernels


def _forward_draws() -> Callable[..., None]:
    """Where the products that it calls are known: its code can't be loaded otherwise."""
    from murho.model.engines.compiled.forward_kernel import forward_draws

    return forward_draws


def at_hand() -> Kernels | None:
    """Compiled code, inside `compiled_code` and if it is loaded."""
    return _IN_USE.get()


@contextmanager
def compiled_code(work: int) -> Iterator[None]:
    """Uses compiled code if it is loaded, or if what was done without would have paid for loading it.

    Args:
        work: Components times rows times levels and thresholds of an answer, about.
    """
    kernels = _PROCESS.kernels
    if kernels is None:
        _PROCESS.spent += work
        if _PROCESS.spent > LOADING:
            kernels = load()
    before = _IN_USE.set(kernels)
    try:
        yield
    finally:
        _IN_USE.reset(before)
