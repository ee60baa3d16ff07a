"""Compiles functions of plain numbers and arrays for this processor (Numba), and keeps the code on disk.

The code is kept beside the package, or in the user's cache directory where that folder is not writable;
``NUMBA_CACHE_DIR``, if set, replaces both. It is used again only if its sources are unchanged: every file of this
package, the modules whose constants it uses, the files beside the function, and the versions of the compiler. Code of
other versions is removed. One process compiles at a time; others wait, then load its code.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import llvmlite
import numba
import numpy
from numba.core.types import void
from numba.extending import intrinsic

from murho.model.distributions import steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "compiled",
    "kept_code",
    "part",
    "summing_part",
    "widest_vectors",
]

try:
    import fcntl
except ImportError:  # Windows: two processes that start at once both compile
    fcntl = None  # type: ignore[assignment]  # checked before it is used


Function = TypeVar("Function", bound="Callable[..., Any]")

PREFIX = "compiled-"
"""Beginning of the names of folders with compiled code."""
EXACT = {"contract"}
"""Arithmetic as written, except that a multiplication and an addition may be fused into one rounding."""
IN_ANY_ORDER = {"contract", "reassoc", "nsz"}
"""Arithmetic in which sums may also be in any order. NaN and infinity keep their meaning."""


def part(function: Function) -> Function:
    """Make a function a part of compiled functions, into which it is inlined; only they may call it.

    Args:
        function: A function of numbers, arrays and tuples of these.
    """
    inlined: Function = _compiler(EXACT, inline=True)(function)
    return inlined


def summing_part(function: Function) -> Function:
    """Like `part`, with sums in any order, so that loops over a row's components use vectors."""
    inlined: Function = _compiler(IN_ANY_ORDER, inline=True)(function)
    return inlined


def compiled(signature: str) -> Callable[[Function], Function]:
    """Decorator that compiles a function at once, for one signature; the function releases the GIL.

    Args:
        signature: Types of the arguments in Numba's notation.
    """

    def compile_it(function: Function) -> Function:
        result: Function
        try:
            with _code_folder(function):
                result = _compiler(EXACT, signature, cache=True)(function)
        except (OSError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "cannot cache" not in str(error):
                raise
            # No folder is writable: compile for this process alone.
            result = _compiler(EXACT, signature)(function)
        return result

    return compile_it


@intrinsic  # type: ignore[untyped-decorator]
def widest_vectors(_types: Any) -> tuple[Any, Callable[..., Any]]:
    """Make the loops of the compiled function that calls this use vectors of 512 bits, if the processor has them.

    LLVM's default is 256 bits, because some processors slow down with wider vectors; matrix products use them anyway.
    SiLU then takes 0.94 of the time, percentiles of 256 components and more 0.81 to 0.92.
    """

    def mark(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        # Bypass llvmlite's own check, which knows only attributes without a value.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return void(), mark


def _compiler(arithmetic: set[str], *signature: str, cache: bool = False, inline: bool = False) -> Any:
    return numba.njit(*signature, cache=cache, nogil=True, forceinline=inline, error_model="numpy", fastmath=arithmetic)


@contextmanager
def _code_folder(function: Callable[..., Any]) -> Iterator[None]:
    """Set the folder in which Numba looks for compiled code and stores it.

    Raises:
        OSError: No folder is writable.
    """
    name = f"{PREFIX}{_digest(function)}"
    for home in _homes(Path(function.__code__.co_filename).parent):
        folder = home / name
        if _can_be_written(folder):
            with _one_process(folder / "lock"), _directory(folder):
                yield
            for other in home.glob(f"{PREFIX}*"):
                if other != folder:
                    shutil.rmtree(other, ignore_errors=True)
            return
        if folder.exists():  # Numba reads only from a writable folder
            with TemporaryDirectory() as copy, _directory(shutil.copytree(folder, copy, dirs_exist_ok=True)):
                yield
            return
    raise OSError("no folder for compiled code is writable")


def kept_code() -> tuple[Path | None, bool]:
    """The folder that keeps compiled code (None where none is writable), and whether it holds some already."""
    for home in _homes(Path(__file__).parent):
        existing = next(place for place in (home, *home.parents) if place.exists())
        if os.access(existing, os.W_OK):
            return home, any(home.glob(f"{PREFIX}*"))
    return None, False


def _homes(source: Path) -> list[Path]:
    """Folders that may keep the code of functions in a source folder, the preferred one first."""
    # In a folder shared with other installations each has its own, so that none removes another's code.
    own = f"murho-{hashlib.sha256(str(source).encode()).hexdigest()[:8]}"
    if numba.config.CACHE_DIR:
        return [Path(numba.config.CACHE_DIR) / own]
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError:  # a user without a home
        return [source / "__pycache__"]
    return [source / "__pycache__", caches / "numba" / own]


def _can_be_written(directory: Path) -> bool:
    """Whether a directory is writable; make it if it does not exist."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


@contextmanager
def _one_process(path: Path) -> Iterator[None]:
    """Hold a lock on a file, which is released however the process ends."""
    with path.open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _directory(path: str | Path) -> Iterator[None]:
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(path)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


def _digest(function: Callable[..., Any]) -> str:
    """Digest of the sources of a compiled function and of the compiler's versions."""
    folder = Path(function.__code__.co_filename).parent
    files = {Path(str(steps.__file__)), *Path(__file__).parent.glob("*.py"), *folder.glob("*.py")}
    content = [path.read_bytes() for path in sorted(files)]
    versions = f"{numba.__version__} {llvmlite.__version__} {numpy.__version__}".encode()
    return hashlib.sha256(b"".join([versions, *content])).hexdigest()[:16]
