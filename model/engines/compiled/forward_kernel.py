"""The forward pass of many rows, compiled: every draw's layers over tiles of rows that stay in the second cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.engines.compiled.jit import compiled, part
from murho.model.engines.compiled.matrix_products import own_threads, products_at_hand, sgemm
from murho.model.engines.compiled.silu_kernel import silu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    Floats = NDArray[np.float32]
    Integers = NDArray[np.int64]

__all__ = ["forward_draws"]

if not products_at_hand():  # code that calls what is not there can't even be loaded
    raise ImportError("PyTorch has another library than MKL behind its matrix products here")

ADDRESS, STEP, LEADING, UNITS, INPUTS, TRANSPOSED = range(6)
"""Columns of a table of layers: address of the first draw's matrix, bytes from draw to draw, numbers from one row of
the matrix to the next, its rows, its columns, and whether it is stored column by column."""
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
    """Outputs of every row under some draws, SiLU between the layers; it lets other threads run meanwhile.

    Args:
        layers: At least two, see `model.engines.draws.Draws`.
        inputs: The inputs and a row of ones, ``[D + 1, B]``.
        outputs: To be filled, ``[S, P, B]``.
        skip: How many of the last layer's inputs are the network's own, D + 1; 0: there is no skip.
        rows: Rows at a time.
        start: First draw to work on.
        stop: The one behind the last.
    """
    _forward_draws(_table(layers), inputs, outputs, skip, rows, start, stop)


def _table(layers: Sequence[Tensor]) -> Integers:
    """Where layers are, and how they lie there, see `ADDRESS`; one line for each."""
    lines = []
    for layer in layers:
        _, units, inputs = layer.shape
        step, by_unit, by_input = layer.stride()
        transposed = by_unit == 1 and by_input != 1
        leading = by_input if transposed else by_unit
        lines.append((layer.data_ptr(), FLOAT * step, leading, units, inputs, transposed))
    return np.array(lines, dtype=np.int64)


@part
def _product(
    rows: int,
    layer: Integers,
    inputs: int,
    matrix: np.int64,
    values: np.int64,
    apart: int,
    into: np.int64,
    into_apart: int,
    adding: bool,
    sizes: Integers,
    factors: Floats,
    letters: NDArray[np.uint8],
) -> None:
    """One layer's product, rows side by side: BLAS sees all of it transposed.

    Args:
        rows: R.
        layer: Its line of the table.
        inputs: How many of its inputs count.
        matrix: Address of the draw's matrix, from the first of these on.
        values: Address of the inputs, ``[inputs, R]``.
        apart: Numbers from one of these lines to the next.
        into: Address of the outputs, ``[units, R]``.
        into_apart: Numbers from one of those lines to the next.
        adding: Whether the product is added to them.
        sizes: Room for six integers of eight bytes, the lower four first: a BLAS with 32-bit integers reads them right,
            and so does one with 64-bit integers.
        factors: Room for two numbers.
        letters: Room for two letters.
    """
    sizes[0], sizes[1], sizes[2] = rows, layer[UNITS], inputs
    sizes[3], sizes[4], sizes[5] = apart, layer[LEADING], into_apart
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
    """`forward_draws` of layers by their `_table`."""
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
            some = min(rows, batch - first)
            own = np.int64(inputs.ctypes.data) + FLOAT * first
            values, apart = own, batch
            for number in range(count - 1):
                layer, buffer = layers[number], buffers[number % 2]
                matrix, into = layer[ADDRESS] + draw * layer[STEP], np.int64(buffer.ctypes.data)
                _product(
                    some,
                    layer,
                    layer[INPUTS],
                    matrix,
                    values,
                    apart,
                    into,
                    some,
                    False,
                    sizes,
                    factors,
                    letters,
                )
                silu(buffer[: layer[UNITS] * some])
                values, apart = into, some
            matrix = last[ADDRESS] + draw * last[STEP]
            into = np.int64(outputs.ctypes.data) + FLOAT * (draw * last[UNITS] * batch + first)
            hidden = last[INPUTS] - skip
            if skip:
                beyond = matrix + FLOAT * hidden
                _product(some, last, skip, beyond, own, batch, into, batch, False, sizes, factors, letters)
            adding = skip > 0
            _product(some, last, hidden, matrix, values, apart, into, batch, adding, sizes, factors, letters)
    own_threads(before)
