"""The forward pass of many rows, compiled: each draw's layers over tiles of rows that stay in second-level cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.engines.compiled.jit import compiled, part
from murho.model.engines.compiled.matrix_products import own_threads, register_products, sgemm
from murho.model.engines.compiled.silu_kernel import silu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    Floats = NDArray[np.float32]
    Integers = NDArray[np.int64]

__all__ = ["forward_draws"]

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
        layers: At least two layers of `model.engines.draws.Draws`.
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
