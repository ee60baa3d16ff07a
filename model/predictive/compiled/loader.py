"""Loads compiled code once per process, or logs once why there is none.

Numba is an extra (``murho[compiled]``). Loading takes about a second and 120 MiB. On its first use on a machine the
code is compiled, which takes about twenty seconds. A failure here is no error: PyTorch gives the same answers.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Kernels",
    "load",
]

_LOG = logging.getLogger("murho.engines")

LONG_SECONDS = 3.0
"""Loading takes about one second; what takes longer than this is compiling."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The compiled functions that an engine calls.

    Attributes:
        answer_rows: `answer_kernel.answer_rows`.
        pool_draws: `class_kernel.pool_draws`.
        settle_draws: `class_kernel.settle_draws`.
        forward_draws: `forward_kernel.forward_draws`; None where the matrix products that it calls are missing.
    """

    answer_rows: Callable[..., None]
    pool_draws: Callable[..., None]
    settle_draws: Callable[..., None]
    forward_draws: Callable[..., None] | None


@cache
def load() -> Kernels | None:
    """Load the compiled functions; None where Numba is missing, or does not work on this Python or processor."""
    try:
        with _said_if_long():
            return compile_kernels()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("numba", "llvmlite"):
            raise
        _LOG.info(
            "PyTorch answers: compiled code needs Numba; run pip install '.[compiled]' in a clone of Murho's repository"
        )
    except Exception as error:  # whatever a compiler may fail with
        _LOG.warning("PyTorch answers, more slowly: compiled code can't be loaded here (%r)", error)
    return None


@contextmanager
def _said_if_long(seconds: float = LONG_SECONDS) -> Iterator[None]:
    """Log during a long block what it does, so that the first start on a machine isn't silent."""

    def say() -> None:
        _LOG.info("compiling for this kind of processor, about 20 s; the code is kept, so that later starts load it")

    timer = threading.Timer(seconds, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def compile_kernels() -> Kernels:
    """Import the kernels, which compiles them or loads the code that an earlier process compiled.

    Raises:
        ImportError: Numba is missing, or does not work with this Python or NumPy.
        Exception: Numba can't compile for this processor.
    """
    from murho.model.predictive.compiled.answers import answer_rows, pool_draws, settle_draws
    from murho.model.predictive.compiled.passes import register_products

    if not register_products():
        _LOG.info("PyTorch computes the network: this build of it has no MKL for compiled code to call")
        return Kernels(answer_rows, pool_draws, settle_draws, None)
    from murho.model.predictive.compiled.passes import forward_draws

    return Kernels(answer_rows, pool_draws, settle_draws, forward_draws)
