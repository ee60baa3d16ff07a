"""Products of matrices for compiled code: the library behind PyTorch's own (MKL), called without PyTorch between.

A call by way of PyTorch takes some ten microseconds with all that belongs to it; a loop in compiled code takes tiles
that stay in the cache, where that would be most of the time.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite.binding
import torch
from numba.core import types

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["own_threads", "products_at_hand", "sgemm"]

SYMBOLS = {"murho_sgemm": "sgemm_", "murho_own_threads": "MKL_Set_Num_Threads_Local"}
"""What compiled code calls them, and what they are called there."""

sgemm: Callable[..., None] = types.ExternalFunction("murho_sgemm", types.void(*(types.int64,) * 13))
"""BLAS's, all of whose arguments are addresses."""
own_threads: Any = types.ExternalFunction("murho_own_threads", types.int32(types.int32))
"""Sets how many threads its products take from the calling one; returns what that was."""


def products_at_hand() -> bool:
    """Makes them known to compiled code; False where PyTorch has another library behind it."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        library = ctypes.CDLL(str(path))
        found = {ours: getattr(library, theirs) for ours, theirs in SYMBOLS.items()}
    except (OSError, AttributeError):
        return False
    for name, function in found.items():
        llvmlite.binding.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    return True
