"""Draws of the weights, compiled: random numbers, their coupling, and ``mu + sigma epsilon`` in one pass.

The numbers are those of `model.engines.philox_normals` and `model.engines.coupled_normals` to the bit: a product and a
sum are never fused here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from murho.model.engines.compiled.jit import as_written, exactly_as_written, widest_vectors
from murho.model.engines.coupled_normals import BLOCK
from murho.model.engines.philox_normals import (
    BIAS,
    FRACTION_BITS,
    INTERVAL_BITS,
    KEY_STEPS,
    LANES,
    MANTISSA_BITS,
    MULTIPLIERS,
    ROUNDS,
    SCALE_BITS,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

__all__ = ["draw_weights"]

FIRST_FACTOR, SECOND_FACTOR = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
FIRST_STEP, SECOND_STEP = np.uint64(KEY_STEPS[0]), np.uint64(KEY_STEPS[1])
WORD, LOW, ONE, SIGN = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(1), np.uint64(31)
TO_INTERVAL = np.int64(MANTISSA_BITS - INTERVAL_BITS)
TO_PLACE = np.int64(MANTISSA_BITS - INTERVAL_BITS - FRACTION_BITS)
FIRST_INTERVAL, PLACES = np.int64(BIAS << INTERVAL_BITS), np.int64((1 << FRACTION_BITS) - 1)
PLACE_BITS = np.int64(FRACTION_BITS)
GRAIN = np.float32(2.0**-SCALE_BITS)


@as_written
def _words(seed: np.uint64, draw: np.uint64, into: NDArray[np.uint32]) -> None:
    """Fill with the random words of a draw, ``[64 n]``; see `philox_normals.philox`."""
    widest_vectors()
    for block in range(into.size // (4 * LANES)):
        for lane in range(LANES):
            place = np.uint64(block * LANES + lane)
            first, second, third, fourth = place & LOW, place >> WORD, draw & LOW, draw >> WORD
            key, other = seed & LOW, seed >> WORD
            for _ in range(ROUNDS):
                of_first, of_third = FIRST_FACTOR * first, SECOND_FACTOR * third
                first, third = (of_third >> WORD) ^ second ^ key, (of_first >> WORD) ^ fourth ^ other
                second, fourth = of_third & LOW, of_first & LOW
                key, other = (key + FIRST_STEP) & LOW, (other + SECOND_STEP) & LOW
            at = block * 4 * LANES + lane
            into[at] = first
            into[at + LANES] = second
            into[at + 2 * LANES] = third
            into[at + 3 * LANES] = fourth


@as_written
def _normals(words: NDArray[np.uint32], table: NDArray[np.int32], into: Floats) -> None:
    """Convert words to standard normal numbers; see `philox_normals.standard_normals`."""
    widest_vectors()
    for number in range(into.size):
        bits = np.uint64(words[number])
        fields = np.float64(np.int64(((bits << ONE) & LOW) | ONE)).view(np.int64)
        interval = (fields >> TO_INTERVAL) - FIRST_INTERVAL
        left = np.int64(table[interval])
        size = left + (((np.int64(table[interval + 1]) - left) * ((fields >> TO_PLACE) & PLACES)) >> PLACE_BITS)
        into[number] = np.float32(-size if bits >> SIGN else size) * GRAIN


@as_written
def _coupled(row: Floats, total: Floats, scale: np.float32, share: np.float32) -> None:
    widest_vectors()
    for number in range(row.size):
        scaled = row[number] * scale
        row[number] = scaled - total[number] * share
        total[number] += row[number]


@as_written
def _weights(mu: Floats, sigma: Floats, row: Floats) -> None:
    widest_vectors()
    for number in range(row.size):
        row[number] = mu[number] + sigma[number] * row[number]


@as_written
def _place(row: Floats, line: NDArray[np.int64], number: int, layers: Floats) -> None:
    """Copy the weights and biases of one layer of one draw to their places; see `draw_weights`."""
    at, inputs, outputs, into, of_draw, of_output, of_input = line
    into += number * of_draw
    if of_output == 1:
        for unit in range(inputs):
            start, source = into + unit * of_input, at + unit * outputs
            for output in range(outputs):
                layers[start + output] = row[source + output]
        return
    for output in range(outputs):
        start = into + output * of_output
        for unit in range(inputs):
            layers[start + unit] = row[at + unit * outputs + output]


@exactly_as_written(
    "void(uint64, int64, float32[:,::1], float32[:,::1], int32[::1], int64[:,::1], float32[::1], int64, int64)"
)
def draw_weights(
    seed: int,
    first: int,
    mu: Floats,
    sigma: Floats,
    table: NDArray[np.int32],
    layout: NDArray[np.int64],
    layers: Floats,
    start: int,
    stop: int,
) -> None:
    """Fill some draws of the weights; see `model.engines.draw_maker.DrawMaker`.

    Args:
        seed: Seed of the draws.
        first: Number of the draw that is the first one of ``layers``, a multiple of `BLOCK`.
        mu: ``[M, P]``.
        sigma: ``[M, P]``.
        table: `philox_normals.normal_table`.
        layout: A line for each layer: where its numbers begin among the P, the number of its inputs with the one for
            the bias, that of its outputs, where it begins in ``layers``, and the steps there from draw to draw, from
            output to output and from input to input.
        layers: To be filled.
        start: First draw to fill, counted from ``first``, a multiple of `BLOCK`.
        stop: The draw after the last one.
    """
    members, count = mu.shape
    words = np.empty(-(-count // (4 * LANES)) * 4 * LANES, np.uint32)
    sums, row = np.empty((members, count), np.float32), np.empty(count, np.float32)
    for number in range(start, stop):
        draw = first + number
        member, block = draw % members, draw - draw % BLOCK
        own = block + (member - block) % members
        before, size = (draw - own) // members, 1 + (block + BLOCK - 1 - own) // members
        left, total = size - before, sums[member]
        if before == 0 or left > 1:
            _words(np.uint64(seed), np.uint64(draw), words)
            _normals(words, table, row)
        if before == 0:
            total[:] = row
        elif left == 1:
            row[:] = -total
        else:
            scale = np.float32(math.sqrt(size * (left - 1) / ((size - 1) * left)))
            _coupled(row, total, scale, np.float32(1.0 / left))
        _weights(mu[member], sigma[member], row)
        for layer in range(len(layout)):
            _place(row, layout[layer], number, layers)
