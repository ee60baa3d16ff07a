"""The network's forward pass of many rows, compiled.

Loops in compiled code multiply tiles small enough to stay in the CPU's cache. For these the overhead of a call through
PyTorch would be most of the time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from murho.model.compiling import (
    ONE,
    QUICK_FURTHEST,
    compiled,
    own_threads,
    quick_exponential,
    require_products,
    sgemm,
    widest_vectors,
)

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

require_products()


@compiled("void(float32[::1])")
def silu(values: Floats) -> None:
    """Compute ``x / (1 + exp(-x))`` in place, ``[N]``, to a relative error of 6e-7 or an absolute error of 2e-9."""
    widest_vectors()
    for index in range(values.size):
        power = min(max(-values[index], -QUICK_FURTHEST), QUICK_FURTHEST)
        values[index] /= ONE + quick_exponential(power)


ROWS, UNITS, INPUTS, STRIDE, LEADING, INTO_STRIDE, ALPHA, BETA, LETTER_N, LETTER = range(10)
"""Columns of a table of products, of which BLAS gets the addresses: its arguments but the matrices. A BLAS with 32-bit
integers, and one letter or float32, reads the first bytes of these 64-bit little-endian integers."""
MATRIX, OF_DRAW, FROM, FROM_ROW, INTO, INTO_ROW, INTO_DRAW, BUFFER = range(10, 18)
"""Further columns: addresses of the first draw's matrix, of the inputs and of the outputs, with the bytes from draw to
draw and from row to row; and which buffer has the outputs, to be activated; -1: none."""
FLOAT, WIDE, ONE_BITS = 4, 8, 0x3F800000


def forward_draws(
    layers: Sequence[Tensor], inputs: Floats, outputs: Floats, skip: int, rows: int, start: int, stop: int
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
    batch, products = inputs.shape[1], []
    buffers = np.zeros((2, max(layer.shape[1] for layer in layers[:-1]) * rows), np.float32)
    values = inputs
    for number, layer in enumerate(layers):
        _, units, width = layer.shape
        of_draw, by_unit, by_input = layer.stride()
        transposed, hidden = by_unit == 1 and by_input != 1, number < len(layers) - 1
        # One unit of one draw has a stride of 1 in both directions, which BLAS refuses though it never uses it.
        leading = max(by_input, units) if transposed else max(by_unit, width)
        into = buffers[number % 2] if hidden else outputs
        parts = [(0, width, values)]
        if skip and not hidden:
            parts = [(width - skip, skip, inputs), (0, width - skip, values)]
        for adding, (first, count, source) in enumerate(parts):
            whole = source is inputs
            sizes = rows, units, count, batch if whole else rows, leading, rows if hidden else batch
            letters = ONE_BITS, ONE_BITS * adding, ord("N"), ord("T" if transposed else "N")
            matrix = layer.data_ptr() + FLOAT * first * by_input, FLOAT * of_draw
            places = source.ctypes.data, FLOAT * whole, into.ctypes.data
            steps = (0, 0, number % 2) if hidden else (FLOAT, FLOAT * units * batch, -1)
            products.append((*sizes, *letters, *matrix, *places, *steps))
        values = into
    _forward_draws(np.array(products, np.int64), buffers, batch, rows, start, stop)


@compiled("void(int64[:,::1], float32[:,::1], int64, int64, int64, int64)")
def _forward_draws(products: Integers, buffers: Floats, batch: int, rows: int, start: int, stop: int) -> None:
    """`forward_draws` with the table of products; rows are contiguous, and so BLAS sees all matrices transposed."""
    before = own_threads(1)
    for draw in range(start, stop):
        for first in range(0, batch, rows):
            for number in range(len(products)):
                product = products[number]
                product[ROWS] = min(rows, batch - first)
                at = np.int64(product.ctypes.data)
                sgemm(
                    at + WIDE * LETTER_N,
                    at + WIDE * LETTER,
                    at + WIDE * ROWS,
                    at + WIDE * UNITS,
                    at + WIDE * INPUTS,
                    at + WIDE * ALPHA,
                    product[FROM] + first * product[FROM_ROW],
                    at + WIDE * STRIDE,
                    product[MATRIX] + draw * product[OF_DRAW],
                    at + WIDE * LEADING,
                    at + WIDE * BETA,
                    product[INTO] + first * product[INTO_ROW] + draw * product[INTO_DRAW],
                    at + WIDE * INTO_STRIDE,
                )
                if product[BUFFER] >= 0:
                    silu(buffers[product[BUFFER], : rows * product[UNITS]])
    own_threads(before)
