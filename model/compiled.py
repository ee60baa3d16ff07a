"""Functions of plain numbers and arrays, compiled for the processor that they run on (by Numba).

What they are compiled to is kept for the next process: beside the package, or where that cannot be written in the
user's cache directory. Numba itself would take what is kept for up to date as long as the file of the outermost
function is; here every file that its functions come from counts.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numba
from numba.core.dispatcher import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["compiled", "part"]

Function = TypeVar("Function", bound="Callable[..., Any]")

REASSOCIATED = {"contract", "reassoc", "nsz"}
"""Sums in any order, and products added without rounding them first; NaN and infinity stay what they are."""


def part(function: Function) -> Function:
    """Makes a function one that compiled functions may call; by itself it is of no use to others.

    Args:
        function: Of numbers, arrays and tuples of these.
    """
    made: Function = _compiler()(function)
    return made


def compiled(signature: str) -> Callable[[Function], Function]:
    """Compiles a function for arguments of one kind, at once; it lets other threads run meanwhile.

    Args:
        signature: Types of its arguments as Numba writes them.
    """

    def compile_it(function: Function) -> Function:
        before = numba.config.CACHE_DIR
        if not before:
            home = Path(function.__code__.co_filename).parent / "__pycache__"
            numba.config.CACHE_DIR = str(home / f"compiled-{_digest(function)}")
        made: Function
        try:
            made = _compiler(signature, cache=True)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            made = _compiler(signature)(function)  # there is nowhere to write: for this process alone
        finally:
            numba.config.CACHE_DIR = before
        return made

    return compile_it


def _compiler(*signature: str, cache: bool = False) -> Any:
    return numba.njit(*signature, cache=cache, nogil=True, error_model="numpy", fastmath=REASSOCIATED)


def _digest(function: Callable[..., Any]) -> str:
    """Tells the source files apart that a function and the functions that it calls are from."""
    files = sorted(set(_files(function)))
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()[:16]


def _files(function: Callable[..., Any]) -> Iterator[str]:
    yield function.__code__.co_filename
    for name in function.__code__.co_names:
        called = function.__globals__.get(name)
        if isinstance(called, Dispatcher):
            yield from _files(called.py_func)
