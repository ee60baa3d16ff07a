"""What compiled code is made of: Numba's options and its kept code, special functions, and MKL's matrix product.

Numba's own cache keeps the code, in a folder named by a digest of all sources: Numba itself looks at one file alone.
Special functions are polynomials in either precision: loops over them use vectors, and the C library takes one number
at a time. Matrix products are direct calls of MKL, the library that PyTorch's own products use: a call through PyTorch
has an overhead of about ten microseconds.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import llvmlite.binding
import numba
import numpy as np
import torch
from numba.core import types
from numba.extending import intrinsic

Function = TypeVar("Function", bound="Callable[..., Any]")

WHOLE = "whole"
"""A file that is there once a folder has all code of its package."""


def _compiler(*signature: str, **options: Any) -> Any:
    # Sums in any order; NaN and infinity keep their meaning.
    options = {"fastmath": {"contract", "reassoc", "nsz"}} | options
    return numba.njit(*signature, nogil=True, error_model="numpy", **options)


def part(function: Function) -> Function:
    """Make a function of numbers, arrays and tuples a part of compiled functions, into which it is inlined."""
    inlined: Function = _compiler(forceinline=True)(function)
    return inlined


def as_written(function: Function) -> Function:
    """Like `part`, with sums in the order in which they are written."""
    inlined: Function = _compiler(forceinline=True, fastmath={"contract"})(function)
    return inlined


def compiled(signature: str) -> Callable[[Function], Function]:
    """Return decorator that compiles a function at once, for one signature; the function releases the GIL.

    Args:
        signature: Types of the arguments in Numba's notation.
    """

    def compile_it(function: Function) -> Function:
        folder, before = code_folder(function.__module__.rpartition(".")[0]), numba.config.CACHE_DIR
        with TemporaryDirectory() as copy:
            if folder is None or not os.access(folder, os.W_OK):  # Numba reads only from a folder that it can write
                if folder is not None and (folder / WHOLE).exists():
                    shutil.copytree(folder, copy, dirs_exist_ok=True)
                folder = Path(copy)
            numba.config.CACHE_DIR = str(folder)
            try:
                result: Function = _compiler(signature, cache=True)(function)
            finally:
                numba.config.CACHE_DIR = before
        return result

    return compile_it


@contextmanager
def compile_package(package: str) -> Iterator[None]:
    """Return the modules of a package that the block imports are compiled by one process, all of them, or all loaded.

    Numba's code of a function differs, and so may the last bits of its results, if what it calls was loaded. So other
    processes wait meanwhile, and what an interrupted one has left is compiled again.

    Args:
        package: The name of the package.
    """
    folder = code_folder(package)
    if folder is None or not os.access(folder, os.W_OK) or (folder / WHOLE).exists():
        yield
        return
    with (folder / "lock").open("w") as lock:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / WHOLE).exists():
            for left in folder.rglob("*.nb[ci]"):
                left.unlink()
        yield
        (folder / WHOLE).touch()


def code_folder(package: str = "") -> Path | None:
    """Return the folder that keeps compiled code of a package, made if it isn't there; None where it can't be made.

    It is in ``NUMBA_CACHE_DIR``, if that is set, else beside the kernels or, where that folder can't be written, in the
    user's cache directory. Each kind of processor has its own.
    """
    here, home = Path(__file__).parent, numba.config.CACHE_DIR
    # Formulas and constants of kernels are in all of these.
    patterns = (
        "compiling.py",
        "distributions/*.py",
        "bbb/likelihood.py",
        "bbb/compiled/*.py",
        "predictive/compiled/*.py",
    )
    sources = b"".join(path.read_bytes() for pattern in patterns for path in sorted(here.glob(pattern)))
    processor = llvmlite.binding.get_host_cpu_name() + llvmlite.binding.get_host_cpu_features().flatten()
    name = f"compiled-{hashlib.sha256(sources + processor.encode()).hexdigest()[:16]}"
    for place in [Path(home)] if home else [here / "__pycache__", Path("~/.cache/murho")]:
        with suppress(OSError, RuntimeError):  # a user without a home
            folder = place.expanduser() / name / package
            folder.mkdir(parents=True, exist_ok=True)
            return folder
    return None


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

    return types.void(), mark


SYMBOLS = {"murho_sgemm": "sgemm_", "murho_own_threads": "MKL_Set_Num_Threads_Local"}
"""Names of the functions in compiled code, and in the library."""

sgemm: Callable[..., None] = types.ExternalFunction("murho_sgemm", types.void(*(types.int64,) * 13))
"""The matrix product of BLAS; all arguments are addresses."""
own_threads: Any = types.ExternalFunction("murho_own_threads", types.int32(types.int32))
"""Sets the number of threads of MKL's products in the calling thread; returns the previous number."""


@cache
def require_products() -> None:
    """Make MKL's functions known to compiled code.

    Raises:
        OSError, AttributeError: PyTorch uses another library than MKL.
    """
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    for ours, theirs in SYMBOLS.items():
        llvmlite.binding.add_symbol(ours, ctypes.cast(getattr(library, theirs), ctypes.c_void_p).value)


Real = np.float32
LOG2_E, LN2, FURTHEST = 1.0 / math.log(2.0), math.log(2.0), 700.0
ROUNDER, QUICK_ROUNDER = 1.5 * 2.0**52, Real(1.5 * 2.0**23)
"""Adding a number to it rounds the number to an integer, which is then in the last bits of the sum."""
SERIES = tuple(1.0 / math.factorial(power) for power in range(11, -1, -1))
"""Coefficients of the exponential's series, the highest power first."""
MIDDLE = 3.75
HIGH = (
    1.7552176307433927e-08,
    8.526359817483033e-09,
    -2.143069227582364e-07,
    -2.7749611122883763e-08,
    1.6959958079430478e-06,
    -1.0083452170479683e-06,
    -1.1399726074447365e-05,
    2.2410019228612918e-05,
    5.162601622259853e-05,
    -0.00029016629854870584,
    0.0002937214295671746,
)
LOW = (
    0.0017556295098350434,
    -0.009746581194305737,
    0.028362276757789878,
    -0.058693398387769276,
    0.09230432122630407,
    -0.10880393015455231,
    0.08227673848712364,
    0.003585415485781718,
    -0.1402405985855061,
    1.2375126308378264,
)
"""Coefficients of the powers of ``(x - MIDDLE) / (x + MIDDLE)`` in `complement`, the highest power first."""
ZERO, ONE, THREE = Real(0.0), Real(1.0), Real(3.0)
QUICK_LOG2_E, QUICK_LN2, QUICK_FURTHEST = Real(LOG2_E), Real(LN2), Real(88.0)
QUICK_SERIES = tuple(Real(number) for number in SERIES[4:])
QUICK_COMPLEMENT = tuple(
    Real(number)
    for number in (
        0.0026956736110150814,
        0.0026148247998207808,
        -0.024005485698580742,
        0.0682382583618164,
        -0.11925079673528671,
        0.12965242564678192,
        -0.04756319522857666,
        -0.13562127947807312,
        1.2530080080032349,
    )
)
ARTANH = tuple(Real(2.0 / power) for power in range(15, 0, -2))


@part
def polynomial(coefficients: Any, place: Any, value: Any) -> Any:
    """Horner's scheme from ``value`` on, in either precision; of at most twelve coefficients, which are unrolled.

    ``value`` is the leading coefficient: from 0 on, a tenth of `silu` would be the product 0 ``place``.
    """
    for coefficient in coefficients:
        value = value * place + coefficient
    return value


@as_written
def exponential(value: float) -> float:
    """``exp(x)`` for x from -700 to 700, to which it is limited, to a relative error of 3e-14."""
    value = min(max(value, -FURTHEST), FURTHEST)
    rounded = value * LOG2_E + ROUNDER
    bits = (np.float64(rounded).view(np.int64) << np.int64(52)) + np.int64(0x3FF0000000000000)
    answer: float = polynomial(SERIES[1:], value - (rounded - ROUNDER) * LN2, SERIES[0]) * np.int64(bits).view(
        np.float64
    )
    return answer


@part
def complement(value: float) -> float:
    """``exp(x^2) erfc(x)`` for x >= 0, to a relative error of 1e-14.

    ``(1 + 2 x) exp(x^2) erfc(x)`` is a polynomial in ``(x - 3.75) / (x + 3.75)``, after Shepherd & Laframboise (1981,
    Mathematics of Computation 36, 249-253), here of degree 20 from Chebyshev's series, with an error of 3e-15.
    """
    rising, shifted = 1.0 + 2.0 * value, value + MIDDLE
    reciprocal = 1.0 / (rising * shifted)
    place = (value - MIDDLE) * rising * reciprocal
    answer: float = polynomial(LOW, place, polynomial(HIGH[1:], place, HIGH[0])) * shifted * reciprocal
    return answer


@as_written
def quick_exponential(value: Any) -> Any:
    """`exponential` in single precision, for x from -88 to 88: to a few units in the last place, or 0 below 1e-38."""
    rounded = value * QUICK_LOG2_E + QUICK_ROUNDER
    bits = np.int32((Real(rounded).view(np.int32) << np.int32(23)) + np.int32(0x3F800000))
    return polynomial(QUICK_SERIES[1:], value - (rounded - QUICK_ROUNDER) * QUICK_LN2, QUICK_SERIES[0]) * bits.view(
        Real
    )


@part
def quick_complement(value: Any) -> Any:
    """`complement` in single precision, for x from 0 to 6.5, to a relative error of 3e-7."""
    rising, shifted = ONE + value + value, value + THREE
    reciprocal = ONE / (rising * shifted)
    return (
        polynomial(QUICK_COMPLEMENT[1:], (value - THREE) * rising * reciprocal, QUICK_COMPLEMENT[0])
        * shifted
        * reciprocal
    )


@part
def quick_softplus(value: Any) -> Any:
    """``log(1 + exp(x))`` to a relative error of 3e-7; ``log(1 + t)`` is ``2 artanh(t / (2 + t))``, by its series."""
    power = quick_exponential(-min(abs(value), QUICK_FURTHEST))
    place = power / (ONE + ONE + power)
    return max(value, ZERO) + place * polynomial(ARTANH[1:], place * place, ARTANH[0])
