"""Matrix products for compiled code: direct calls of MKL, the library that PyTorch's own products use.

A call through PyTorch has an overhead of about ten microseconds. Loops in compiled code multiply tiles small enough to
stay in the CPU's cache, for which this overhead would be most of the time.
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

__all__ = ["own_threads", "register_products", "sgemm"]

SYMBOLS = {"murho_sgemm": "sgemm_", "murho_own_threads": "MKL_Set_Num_Threads_Local"}
"""Names of the functions in compiled code, and in the library."""

sgemm: Callable[..., None] = types.ExternalFunction("murho_sgemm", types.void(*(types.int64,) * 13))
"""The matrix product of BLAS; all arguments are addresses."""
own_threads: Any = types.ExternalFunction("murho_own_threads", types.int32(types.int32))
"""Sets the number of threads of MKL's products in the calling thread; returns the previous number."""


def register_products() -> bool:
    """Make MKL's functions known to compiled code; False where PyTorch uses another library."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        library = ctypes.CDLL(str(path))
        functions = {ours: getattr(library, theirs) for ours, theirs in SYMBOLS.items()}
    except (OSError, AttributeError):
        return False
    for name, function in functions.items():
        llvmlite.binding.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    return True
