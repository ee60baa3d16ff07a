"""Functions of plain numbers and arrays, compiled for the processor that they run on (by Numba).

What they are compiled to is kept for the next process: beside the package, or where that cannot be written in the
user's cache directory. Numba by itself would take it for up to date as long as the file of the outermost function is;
here every file that a function's parts come from counts. ``NUMBA_CACHE_DIR`` is heeded.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import numba
from numba.core.dispatcher import Dispatcher
from numba.core.types import void
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["compiled", "part", "summing_part", "widest_vectors"]

Function = TypeVar("Function", bound="Callable[..., Any]")

EXACT = {"contract"}
"""As written, but for a product that is added without having been rounded."""
IN_ANY_ORDER = {"contract", "reassoc", "nsz"}
"""Sums in any order, too. NaN and infinity stay what they are."""


def part(function: Function) -> Function:
    """Makes a function one that compiled functions may call; by itself it is of no use to others.

    Args:
        function: Of numbers, arrays and tuples of these.
    """
    made: Function = _compiler(EXACT, inline=True)(function)
    return made


def summing_part(function: Function) -> Function:
    """The same with sums in any order: loops over a row's components, many at a time."""
    made: Function = _compiler(IN_ANY_ORDER, inline=True)(function)
    return made


def compiled(signature: str) -> Callable[[Function], Function]:
    """Compiles a function for arguments of one kind, at once; it lets other threads run meanwhile.

    Args:
        signature: Types of its arguments as Numba writes them.
    """

    def compile_it(function: Function) -> Function:
        made: Function
        try:
            with _kept(function):
                made = _compiler(EXACT, signature, cache=True)(function)
        except (OSError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "cannot cache" not in str(error):
                raise
            # There is nowhere to write: for this process alone.
            made = _compiler(EXACT, signature)(function)
        return made

    return compile_it


@intrinsic  # type: ignore[untyped-decorator]
def widest_vectors(_types: Any) -> tuple[Any, Callable[..., Any]]:
    """Called in a compiled function, has its loops use vectors of 512 bits where the processor has them.

    LLVM by itself stays at 256, for processors that slow down when they see wider ones; products of matrices use these
    anyway. SiLU takes 0.94 of the time, percentiles of 256 components and more 0.81 to 0.92.
    """

    def mark(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        # llvmlite checks attributes against the list of those without a value.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return void(), mark


def _compiler(arithmetic: set[str], *signature: str, cache: bool = False, inline: bool = False) -> Any:
    return numba.njit(
        *signature, cache=cache, nogil=True, forceinline=inline, error_model="numpy", fastmath=arithmetic
    )


@contextmanager
def _kept(function: Callable[..., Any]) -> Iterator[None]:
    """Where Numba looks for what is compiled already, and puts what it compiles."""
    home = Path(function.__code__.co_filename).parent / "__pycache__"
    mine = home / f"compiled-{_digest(function)}"
    if numba.config.CACHE_DIR:
        yield
    elif os.access(next(place for place in (mine, home, home.parent) if place.exists()), os.W_OK):
        with _directory(mine):
            yield
    elif mine.exists():  # Numba reads only where it could write
        with TemporaryDirectory() as copy, _directory(shutil.copytree(mine, copy, dirs_exist_ok=True)):
            yield
    else:
        yield


@contextmanager
def _directory(path: str | Path) -> Iterator[None]:
    numba.config.CACHE_DIR = str(path)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = ""


def _digest(function: Callable[..., Any]) -> str:
    """Tells the source files apart that a function and its parts are from."""
    files = sorted({__file__, *_files(function)})
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()[:16]


def _files(function: Callable[..., Any]) -> Iterator[str]:
    yield function.__code__.co_filename
    for name in function.__code__.co_names:
        called = function.__globals__.get(name)
        if isinstance(called, Dispatcher):
            yield from _files(called.py_func)
