"""Loads compiled code once per process, or logs once why there is none.

Numba is an extra (``murho[compiled]``). Loading takes about a second and 120 MiB. On its first use on a machine the
code is compiled, which takes about twenty seconds. A failure here is no error: PyTorch gives the same answers.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Kernels", "compile_kernels", "load"]

_LOG = logging.getLogger("murho.engines")

LONG_SECONDS = 3.0
"""Loading takes about one second; what takes longer than this is compiling."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The compiled functions that an engine calls.

    Attributes:
        answer_rows: `rows.answer_rows`.
        pool_draws: `classes.pool_draws`.
        settle_draws: `classes.settle_draws`.
        forward_draws: `network.forward_draws`; None where the matrix products that it calls are missing.
    """

    answer_rows: Callable[..., None]
    pool_draws: Callable[..., None]
    settle_draws: Callable[..., None]
    forward_draws: Callable[..., None] | None


@cache
def load() -> Kernels | None:
    """Load the compiled functions; None where Numba is missing, or does not work on this Python or processor."""
    words = "compiling for this kind of processor, about 20 s; the code is kept, so that later starts load it"
    timer = threading.Timer(LONG_SECONDS, _LOG.info, (words,))
    timer.daemon = True
    timer.start()
    try:
        return compile_kernels()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("numba", "llvmlite"):
            raise
        _LOG.info(
            "PyTorch answers: compiled code needs Numba; run pip install '.[compiled]' in a clone of Murho's repository"
        )
    except Exception as error:  # whatever a compiler may fail with
        _LOG.warning("PyTorch answers, more slowly: compiled code can't be loaded here (%r)", error)
    finally:
        timer.cancel()
    return None


def compile_kernels() -> Kernels:
    """Import the kernels, which compiles them or loads the code that an earlier process compiled.

    Raises:
        ImportError: Numba is missing, or does not work with this Python or NumPy.
        Exception: Numba can't compile for this processor.
    """
    from murho.model.predictive.compiled.classes import pool_draws, settle_draws
    from murho.model.predictive.compiled.rows import answer_rows

    try:
        from murho.model.predictive.compiled.network import forward_draws
    except (OSError, AttributeError):
        _LOG.info("PyTorch computes the network: this build of it has no MKL for compiled code to call")
        return Kernels(answer_rows, pool_draws, settle_draws, None)
    return Kernels(answer_rows, pool_draws, settle_draws, forward_draws)
