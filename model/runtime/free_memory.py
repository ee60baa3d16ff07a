"""Memory that is free, but still held by the process, given back to the system."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["give_back"]


def give_back() -> None:
    """Give the freed memory of the C library back to the system, where that can be asked for (glibc).

    Tensors and arrays of some megabytes leave gaps between smaller ones. glibc keeps these for later, and after fits of
    different sizes they are hundreds of megabytes. It takes milliseconds.
    """
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
    if trim is not None:
        trim(0)
