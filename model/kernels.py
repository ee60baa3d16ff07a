"""Compiled code for the processor, and when it is worth loading.

Loading it takes a second and 120 MiB; where it was never compiled, ten seconds. So the first second's worth of work is
left to PyTorch, or `load` is called, as the service does at its start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LOADING", "Kernels", "at_hand", "load", "worth_loading"]

LOADING = 2**26
"""Components times rows times levels of which PyTorch finds the percentiles while compiled code is loaded."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """Compiled functions.

    Attributes:
        quantiles: `model.quantile_kernel.quantiles`.
        lognormal_moments: `model.lognormal_kernel.lognormal_moments`.
        silu: `model.silu_kernel.silu`.
    """

    quantiles: Callable[..., None]
    lognormal_moments: Callable[..., None]
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


def load() -> Kernels:
    """Loads compiled code, and compiles it if that was never done on this machine."""
    if _PROCESS.kernels is None:
        from model.lognormal_kernel import lognormal_moments
        from model.quantile_kernel import quantiles
        from model.silu_kernel import silu

        _PROCESS.kernels = Kernels(quantiles, lognormal_moments, silu)
    return _PROCESS.kernels


def at_hand() -> Kernels | None:
    """Compiled code if it is loaded."""
    return _PROCESS.kernels


def worth_loading(work: int) -> Kernels | None:
    """Compiled code if it is loaded, or if what was done without would have paid for loading it.

    Args:
        work: Components times rows times levels that are to be worked on.
    """
    if _PROCESS.kernels is None:
        _PROCESS.spent += work
        if _PROCESS.spent <= LOADING:
            return None
    return load()
