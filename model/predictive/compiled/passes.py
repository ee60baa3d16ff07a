"""The network's forward pass, compiled.

Matrix products are direct calls of MKL, the library that PyTorch's own products use. A call through PyTorch has an
overhead of about ten microseconds. Loops in compiled code multiply tiles small enough to stay in the CPU's cache, for
which this overhead would be most of the time.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite.binding
import numpy as np
import torch
from numba.core import types

from murho.model.predictive.compiled.jit import compiled, part, widest_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    Floats = NDArray[np.float32]
    Integers = NDArray[np.int64]

__all__ = [
    "forward_draws",
    "own_threads",
    "register_products",
    "sgemm",
    "silu",
]


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


Real, Whole = np.float32, np.int32
ONE, FURTHEST = Real(1.0), Real(126.0)
MINUS_LOG2_E = Real(-1.4426950408889634)
ROUNDER = Real(1.5 * 2.0**23)
"""Adding a number to it rounds the number to an integer, which is then in the last bits of the sum."""
MANTISSA = Whole(23)
E1, E2, E3 = Real(0.6931471824645996), Real(0.24022650718688965), Real(0.05550327152013779)
E4, E5, E6 = Real(0.00961802527308464), Real(0.0013400432653725147), Real(0.00015469732170458883)


@compiled("void(float32[::1])")
def silu(values: NDArray[np.float32]) -> None:
    """Compute ``x / (1 + exp(-x))`` in place, to a relative error of 6e-7 or an absolute error of 2e-9.

    The exponential is ``2^(n + f)`` with an integer n and a polynomial of degree 6 in f, from Chebyshev points: its
    error is 1.8e-8 without rounding. Integer arithmetic adds n to the exponent.

    Args:
        values: ``[N]``.
    """
    widest_vectors()
    for index in range(values.size):
        value = values[index]
        power = min(max(value * MINUS_LOG2_E, -FURTHEST), FURTHEST)
        rounded = power + ROUNDER
        rest = power - (rounded - ROUNDER)
        series = (((((E6 * rest + E5) * rest + E4) * rest + E3) * rest + E2) * rest + E1) * rest + ONE
        bits = Real(series).view(Whole) + (Real(rounded).view(Whole) << MANTISSA)
        values[index] = value / (ONE + Whole(bits).view(Real))


if not register_products():  # compiled code that calls a missing function can't be loaded
    raise ImportError("PyTorch has another library than MKL behind its matrix products here")

ADDRESS, STEP, LEADING, UNITS, INPUTS, TRANSPOSED = range(6)
"""Columns of a table of layers: address of the first draw's matrix, bytes from draw to draw, numbers from one row of
the matrix to the next, number of its rows, number of its columns, and whether it is stored column by column."""
FLOAT, WIDE, LETTER_N, LETTER_T = 4, 8, np.uint8(ord("N")), np.uint8(ord("T"))


def forward_draws(
    layers: Sequence[Tensor],
    inputs: Floats,
    outputs: Floats,
    skip: int,
    rows: int,
    start: int,
    stop: int,
) -> None:
    """Compute the outputs of every row under some draws, with SiLU between the layers; releases the GIL.

    Args:
        layers: At least two layers of `model.predictive.draws.Draws`.
        inputs: The inputs and a row of ones, ``[D + 1, B]``.
        outputs: To be filled, ``[S, P, B]``.
        skip: Number of the last layer's inputs that are the network's inputs, D + 1; 0: there is no skip.
        rows: Rows in a tile.
        start: First draw.
        stop: The draw after the last one.
    """
    _forward_draws(_table(layers), inputs, outputs, skip, rows, start, stop)


def _table(layers: Sequence[Tensor]) -> Integers:
    """Addresses and layouts of layers, one line for each; `ADDRESS` and its neighbours name the columns."""
    lines = []
    for layer in layers:
        _, units, inputs = layer.shape
        step, by_unit, by_input = layer.stride()
        transposed = by_unit == 1 and by_input != 1
        # One unit of one draw has a stride of 1 in both directions, which BLAS refuses though it never uses it.
        leading = max(by_input, units) if transposed else max(by_unit, inputs)
        lines.append((layer.data_ptr(), FLOAT * step, leading, units, inputs, transposed))
    return np.array(lines, dtype=np.int64)


@part
def _product(
    rows: int,
    layer: Integers,
    inputs: int,
    matrix: np.int64,
    values: np.int64,
    stride: int,
    into: np.int64,
    into_stride: int,
    adding: bool,
    sizes: Integers,
    factors: Floats,
    letters: NDArray[np.uint8],
) -> None:
    """Compute one layer's product; rows are contiguous, and so BLAS sees all matrices transposed.

    Args:
        rows: R.
        layer: The layer's line of the table.
        inputs: Number of the layer's inputs to use.
        matrix: Address of the first of these in the draw's matrix.
        values: Address of the inputs, ``[inputs, R]``.
        stride: Numbers from one line of the inputs to the next.
        into: Address of the outputs, ``[units, R]``.
        into_stride: Numbers from one line of the outputs to the next.
        adding: Whether to add the product to the outputs.
        sizes: Buffer of six 64-bit little-endian integers, which a BLAS with 32-bit integers reads correctly, too.
        factors: Buffer of two numbers.
        letters: Buffer of two letters.
    """
    sizes[0], sizes[1], sizes[2] = rows, layer[UNITS], inputs
    sizes[3], sizes[4], sizes[5] = stride, layer[LEADING], into_stride
    factors[0], factors[1] = np.float32(1.0), np.float32(1.0 if adding else 0.0)
    letters[0], letters[1] = LETTER_N, LETTER_T if layer[TRANSPOSED] else LETTER_N
    size, factor, letter = (
        np.int64(sizes.ctypes.data),
        np.int64(factors.ctypes.data),
        np.int64(letters.ctypes.data),
    )
    sgemm(
        letter,
        letter + 1,
        size,
        size + WIDE,
        size + 2 * WIDE,
        factor,
        values,
        size + 3 * WIDE,
        matrix,
        size + 4 * WIDE,
        factor + 4,
        into,
        size + 5 * WIDE,
    )


@compiled("void(int64[:,::1], float32[:,::1], float32[:,:,::1], int64, int64, int64, int64)")
def _forward_draws(
    layers: Integers, inputs: Floats, outputs: Floats, skip: int, rows: int, start: int, stop: int
) -> None:
    """`forward_draws` with the `_table` of the layers."""
    before = own_threads(1)
    count, batch = len(layers), inputs.shape[1]
    widest = np.int64(1)
    for number in range(count - 1):
        widest = max(widest, layers[number, UNITS])
    buffers = np.empty((2, widest * rows), dtype=np.float32)
    sizes, factors, letters = np.empty(6, np.int64), np.empty(2, np.float32), np.empty(2, np.uint8)
    last = layers[count - 1]
    for draw in range(start, stop):
        for first in range(0, batch, rows):
            count_rows = min(rows, batch - first)
            tile_inputs = np.int64(inputs.ctypes.data) + FLOAT * first
            values, stride = tile_inputs, batch
            for number in range(count - 1):
                layer, buffer = layers[number], buffers[number % 2]
                matrix, into = layer[ADDRESS] + draw * layer[STEP], np.int64(buffer.ctypes.data)
                _product(
                    count_rows,
                    layer,
                    layer[INPUTS],
                    matrix,
                    values,
                    stride,
                    into,
                    count_rows,
                    False,
                    sizes,
                    factors,
                    letters,
                )
                silu(buffer[: layer[UNITS] * count_rows])
                values, stride = into, count_rows
            matrix = last[ADDRESS] + draw * last[STEP]
            into = np.int64(outputs.ctypes.data) + FLOAT * (draw * last[UNITS] * batch + first)
            hidden = last[INPUTS] - skip
            if skip:
                skip_matrix = matrix + FLOAT * hidden
                _product(
                    count_rows,
                    last,
                    skip,
                    skip_matrix,
                    tile_inputs,
                    batch,
                    into,
                    batch,
                    False,
                    sizes,
                    factors,
                    letters,
                )
            adding = skip > 0
            _product(count_rows, last, hidden, matrix, values, stride, into, batch, adding, sizes, factors, letters)
    own_threads(before)
