"""The network of one member, compiled: its outputs under draws, and the gradient written out.

- Local reparameterisation draws ``h = a + d e`` with mean a, variance ``d^2`` and a standard normal e. With
  ``g = dF/dh``, ``dF/da = g`` and ``dF/d(d^2) = g e / (2 d)``. The 2 cancels against the one of ``d(sigma^2)`` and of
  ``d(x^2)``, so the kernels carry ``g e / d``.
- Normal numbers are quantiles (Giles 2012, "Approximating the erfinv function") of the words of Philox4x32-10 (Salmon,
  Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"). Its key belongs to the member, and its
  counter consists of the place within the layer, the layer and the step. So no two numbers of a fit share a word, and a
  fit is the same to the bit for any number of threads.

Products are MKL's, all else is loops of 16 numbers at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murho.model.compiling import (
    ARTANH,
    ONE,
    QUICK_FURTHEST,
    THREE,
    ZERO,
    as_written,
    compiled,
    own_threads,
    part,
    polynomial,
    quick_exponential,
    quick_softplus,
    require_products,
    sgemm,
    widest_vectors,
)

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

require_products()

Real, Word, Long = np.float32, np.uint32, np.uint64
HALF = Real(0.5)
RELU, SILU, SIGMOID = range(3)
"""Activations, in the order of `model.bbb.network.ACTIVATIONS`."""

CENTRE = tuple(
    Real(number)
    for number in (
        2.81022636e-08,
        3.43273939e-07,
        -3.5233877e-06,
        -4.39150654e-06,
        0.00021858087,
        -0.00125372503,
        -0.00417768164,
        0.246640727,
        1.50140941,
    )
)
TAIL = tuple(
    Real(number)
    for number in (
        -0.000200214257,
        0.000100950558,
        0.00134934322,
        -0.00367342844,
        0.00573950773,
        -0.0076224613,
        0.00943887047,
        1.00167406,
        2.83297682,
    )
)
"""Coefficients of the inverse error function, the highest power first, in ``w - 2.5`` and ``sqrt(w) - 3`` for
``w = -log(1 - x^2)``, below and from 5 on (Giles 2012, table 5)."""
SQRT2, LN2, SHIFT, FIVE, STEP = Real(math.sqrt(2.0)), Real(math.log(2.0)), Real(2.5), Real(5.0), Real(2.0**-23)


@part
def quick_log(value: Any) -> Any:
    """Logarithm of a positive number, single precision, to a few units in the last place."""
    bits = np.int32(Real(value).view(np.int32) - np.int32(0x3F3504F3))  # of sqrt(1/2)
    power = np.int32(bits >> np.int32(23))
    rest = np.int32((bits & np.int32(0x007FFFFF)) + np.int32(0x3F3504F3)).view(Real)
    place = (rest - ONE) / (rest + ONE)
    return Real(power) * LN2 + place * polynomial(ARTANH[4:], place * place, ARTANH[3])


ROUNDS, LOW = 10, Long(0xFFFFFFFF)
MULTIPLIERS, WEYL = (Long(0xD2511F53), Long(0xCD9E8D57)), (Long(0x9E3779B9), Long(0xBB67AE85))


@part
def philox(a: Any, b: Any, c: Any, d: Any, key: Any) -> Any:
    """Four words of Philox4x32-10, from a counter of four words of 32 bits and a key of 64 bits.

    Words are 64 bits wide, because vectors multiply 32 by 32 bits in that form; their upper halves have no meaning.
    """
    first_key, second_key = Long(key) & LOW, Long(key) >> Long(32)
    for _ in range(ROUNDS):
        first, second = (a & LOW) * MULTIPLIERS[0], (c & LOW) * MULTIPLIERS[1]
        a, b, c, d = (second >> Long(32)) ^ b ^ first_key, second, (first >> Long(32)) ^ d ^ second_key, first
        first_key, second_key = first_key + WEYL[0], second_key + WEYL[1]
    return a, b, c, d


@compiled("void(uint32[::1], int64, int64, uint64)")
def fill_words(words: NDArray[np.uint32], layer: int, step: int, key: Any) -> None:
    """Fill an array with the words of a member's layer and step, ``[n]``; each counter gives four of them."""
    widest_vectors()
    quarter = words.size // 4
    one, two, three = words[quarter:], words[2 * quarter :], words[3 * quarter :]
    for place in range(quarter):
        a, b, c, d = philox(Long(place), Long(layer), Long(step), Long(0), key)
        words[place], one[place], two[place], three[place] = Word(a), Word(b), Word(c), Word(d)
    rest = philox(Long(quarter), Long(layer), Long(step), Long(0), key)
    for place in range(4 * quarter, words.size):
        words[place] = Word(rest[place - 4 * quarter])


@as_written
def _place(word: Any) -> Any:
    """Return a word as a number x between -1 and 1, of 24 bits, and ``1 - x^2``, which in another order could be 0."""
    place = (Real(np.int32(np.int32(word) >> np.int32(8))) + HALF) * STEP
    return place, (ONE - place) * (ONE + place)


@part
def normal(word: Any) -> Any:
    """Return the standard normal number at a word's quantile; its size is at most 5.4."""
    place, rest = _place(word)
    depth = -quick_log(rest)
    near = polynomial(CENTRE[1:], depth - SHIFT, CENTRE[0])
    far = polynomial(TAIL[1:], Real(math.sqrt(depth)) - THREE, TAIL[0])
    return SQRT2 * place * (near if depth < FIVE else far)


@part
def logistic(value: Any) -> Any:
    """``1 / (1 + exp(-x))``, single precision."""
    power = quick_exponential(-min(abs(value), QUICK_FURTHEST))
    share = ONE / (ONE + power)
    return share if value >= ZERO else power * share


@compiled("void(float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], int64)")
def _draw_hidden(means: Floats, variances: Floats, after: Floats, squares: Floats, slopes: Floats, kind: int) -> None:
    """Draw values, and apply the activation; ``e / d`` takes the place of the variances. All ``[n]``.

    The words of the normal numbers are where the slopes will be: with an array of their own, the compiler could not see
    that it is the same place, and would use no vectors.
    """
    widest_vectors()
    words = slopes.view(Word)
    for index in range(means.size):  # the compiler makes a loop of each kind
        number, deviation = normal(words[index]), Real(math.sqrt(variances[index]))
        value = means[index] + deviation * number
        variances[index] = number / deviation
        if kind == RELU:
            hidden, slope = max(value, ZERO), ONE if value > ZERO else ZERO
        else:
            share = logistic(value)
            hidden, slope = share, share * (ONE - share)
            if kind == SILU:
                hidden, slope = value * share, share + value * slope
        after[index], squares[index], slopes[index] = hidden, hidden * hidden, slope


@compiled("void(float32[::1], float32[::1], uint32[::1])")
def _draw(means: Floats, variances: Floats, words: Any) -> None:
    """Draw the outputs, in place of the means; ``e / d`` takes the place of the variances."""
    widest_vectors()
    for index in range(means.size):
        number, deviation = normal(words[index]), Real(math.sqrt(variances[index]))
        means[index] += deviation * number
        variances[index] = number / deviation


@compiled("void(float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], float32[::1])")
def _before_activation(
    below: Floats, through: Floats, after: Floats, slopes: Floats, ratios: Floats, gradient: Floats
) -> None:
    """Return the gradient by a layer's values before the activation; ``ratios`` gets its product with ``e / d``."""
    widest_vectors()
    for index in range(below.size):
        slope = (below[index] + through[index] * after[index]) * slopes[index]
        gradient[index] = slope
        ratios[index] *= slope


@compiled("void(float32[::1], float32[::1], float32[::1], float32[::1])")
def scales(rho: Floats, sigma: Floats, variance: Floats, slope: Floats) -> None:
    """``sigma = softplus(rho)``, its square and its derivative, ``[P]`` each."""
    widest_vectors()
    for index in range(rho.size):
        scale = quick_softplus(rho[index])
        sigma[index], variance[index], slope[index] = scale, scale * scale, logistic(rho[index])


TRANSPOSED, PLAIN, ONE_BITS = ord("T"), ord("N"), 0x3F800000


@part
def _multiply(
    table: Any,
    left: Any,
    turned: Any,
    right: Any,
    turned_right: Any,
    into: Any,
    rows: Any,
    columns: Any,
    inner: Any,
    adding: Any,
) -> None:
    """``into [rows, columns] = left [rows, inner] right [inner, columns]`` (plus ``into``), each or its transpose."""
    table[0], table[1], table[2] = columns, rows, inner
    table[3], table[4], table[5] = (inner if turned_right else columns), (rows if turned else inner), columns
    table[6], table[7] = ONE_BITS, (ONE_BITS if adding else 0)
    table[8], table[9] = (TRANSPOSED if turned_right else PLAIN), (TRANSPOSED if turned else PLAIN)
    at = np.int64(table.ctypes.data)
    # BLAS counts columns first, so it sees all matrices transposed.
    sgemm(
        at + 64,
        at + 72,
        at,
        at + 8,
        at + 16,
        at + 48,
        np.int64(right.ctypes.data),
        at + 24,
        np.int64(left.ctypes.data),
        at + 32,
        at + 56,
        np.int64(into.ctypes.data),
        at + 40,
    )


OUTPUTS, UNITS, WEIGHTS, REST, INNER, BEFORE = range(6)
"""Columns of the table of layers: its outputs; the hidden units that it reads; the place of the first weight of these,
and that of what follows: the weights of the network's inputs, if it reads them, and the biases. Both are one product,
with the inputs and a column of ones, or with the ones alone; how many columns that has; the outputs of all layers
before."""


def layer_table(sizes: Sequence[tuple[int, int]], inputs: int, *, skip: bool) -> Integers:
    """Return the table of layers, ``[L, 6]``.

    Args:
        sizes: `Architecture.layers`.
        inputs: D.
        skip: Whether the last layer reads the inputs, too.
    """
    table, place, before, units = np.empty((len(sizes), 6), np.int64), 0, 0, 0
    for number, (width, outputs) in enumerate(sizes):
        reads = number == 0 or (skip and number == len(sizes) - 1)
        table[number] = outputs, units, place, place + units * outputs, (inputs if reads else 0) + 1, before
        place, before, units = place + (width + 1) * outputs, before + outputs, outputs
    return table


BUFFERS = 5
"""Of each layer and row: means, later the drawn values; variances, later ``e / d``; activations, squares, slopes."""


def room_of_buffers(layers: Integers, rows: int) -> int:
    """Numbers of the buffers of all layers."""
    return rows * BUFFERS * int(layers[:, OUTPUTS].sum())


@part
def _sizes(layers: Any, number: Any) -> Any:
    return (
        layers[number, OUTPUTS],
        layers[number, UNITS],
        layers[number, WEIGHTS],
        layers[number, REST],
        layers[number, INNER],
    )


@part
def _buffer(work: Any, layers: Any, rows: Any, number: Any, which: Any) -> Any:
    outputs = layers[number, OUTPUTS]
    start = rows * (BUFFERS * layers[number, BEFORE] + which * outputs)
    return work[start : start + rows * outputs]


@part
def last_values(work: Any, layers: Any, rows: Any) -> Any:
    """Return the outputs of the network, or the gradient by them: a buffer, ``[B, P]``."""
    last = len(layers) - 1
    return _buffer(work, layers, rows, last, 0).reshape((rows, layers[last, OUTPUTS]))


@part
def gather(features: Any, reads: Any, numbers: Any, inputs: Any, squares: Any) -> None:
    """Return inputs of some rows, what a member does not read as 0, with a column of ones; and their squares."""
    width, at = features.shape[1], 0
    for row in numbers:
        for column in range(width):
            cell = features[row, column] * reads[column]
            inputs[at + column], squares[at + column] = cell, cell * cell
        at += width
        inputs[at], squares[at] = ONE, ONE
        at += 1


@compiled(
    "void(int64[::1], int64[:,::1], float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], float32[::1],"
    " int64, int64, int64, uint64, int64)"
)
def forward(
    table: Integers,
    layers: Integers,
    mu: Floats,
    variance: Floats,
    inputs: Floats,
    squares: Floats,
    ones: Floats,
    work: Floats,
    rows: int,
    copies: int,
    activation: int,
    key: Any,
    step: Any,
) -> None:
    """Return the outputs of rows under draws of their own, see `last_values`.

    Args:
        table: Room for the arguments of BLAS, ``[10]``.
        layers: The table of layers.
        mu: Means of the weights, ``[P]``.
        variance: Their variances.
        inputs: ``[B, D + 1]``, flat, with ones in the last column.
        squares: Their squares.
        ones: ``[S B]``.
        work: The buffers, of S B rows, draw-major.
        rows: B.
        copies: Draws of each row, S.
        activation: `RELU`, `SILU` or `SIGMOID`.
        key: Of the normal numbers.
        step: Number of the step, from 1; 0: none.
    """
    many = rows * copies
    for number in range(len(layers)):
        outputs, units, first, rest, inner = _sizes(layers, number)
        means, variances = _buffer(work, layers, many, number, 0), _buffer(work, layers, many, number, 1)
        if inner > 1:
            _multiply(table, inputs, False, mu[rest:], False, means, rows, outputs, inner, False)
            _multiply(table, squares, False, variance[rest:], False, variances, rows, outputs, inner, False)
            for start in range(rows * outputs, many * outputs, rows * outputs):
                means[start : start + rows * outputs] = means[: rows * outputs]
                variances[start : start + rows * outputs] = variances[: rows * outputs]
        else:
            _multiply(table, ones, False, mu[rest:], False, means, many, outputs, inner, False)
            _multiply(table, ones, False, variance[rest:], False, variances, many, outputs, inner, False)
        if units:
            hidden = _buffer(work, layers, many, number - 1, 2)
            hidden_squares = _buffer(work, layers, many, number - 1, 3)
            _multiply(table, hidden, False, mu[first:], False, means, many, outputs, units, True)
            _multiply(table, hidden_squares, False, variance[first:], False, variances, many, outputs, units, True)
        slopes = _buffer(work, layers, many, number, 4)
        fill_words(slopes.view(Word), number, step, key)
        if number < len(layers) - 1:
            after, after_squares = _buffer(work, layers, many, number, 2), _buffer(work, layers, many, number, 3)
            _draw_hidden(means, variances, after, after_squares, slopes, activation)
        else:
            _draw(means, variances, slopes.view(Word))


@compiled(
    "void(int64[::1], int64[:,::1], float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], float32[::1],"
    " float32[::1], float32[::1], float32[::1], int64)"
)
def backward(
    table: Integers,
    layers: Integers,
    mu: Floats,
    variance: Floats,
    inputs: Floats,
    squares: Floats,
    ones: Floats,
    work: Floats,
    by_mu: Floats,
    by_variance: Floats,
    below: Floats,
    rows: int,
) -> None:
    """Return the gradient by all weights from that by the outputs, which is in their place (`last_values`).

    Args:
        table: Room for the arguments of BLAS, ``[10]``.
        layers: The table of layers.
        mu: Means of the weights, ``[P]``.
        variance: Their variances.
        inputs: ``[B, D + 1]``, flat, with ones in the last column.
        squares: Their squares.
        ones: ``[B]``.
        work: The buffers, as `forward` has left them.
        by_mu: The gradient by the means, to be filled, ``[P]``.
        by_variance: The gradient by the variances, times 2, to be filled.
        below: Room for two numbers of each value of the widest layer.
        rows: B.
    """
    gradient, through = _buffer(work, layers, rows, len(layers) - 1, 0), _buffer(work, layers, rows, len(layers) - 1, 1)
    for index in range(gradient.size):
        through[index] *= gradient[index]
    for number in range(len(layers) - 1, -1, -1):
        outputs, units, first, rest, inner = _sizes(layers, number)
        left, left_squares = (inputs, squares) if inner > 1 else (ones, ones)
        _multiply(table, left, True, gradient, False, by_mu[rest:], inner, outputs, rows, False)
        _multiply(table, left_squares, True, through, False, by_variance[rest:], inner, outputs, rows, False)
        if units == 0:
            return
        hidden = _buffer(work, layers, rows, number - 1, 2)
        hidden_squares = _buffer(work, layers, rows, number - 1, 3)
        _multiply(table, hidden, True, gradient, False, by_mu[first:], units, outputs, rows, False)
        _multiply(table, hidden_squares, True, through, False, by_variance[first:], units, outputs, rows, False)
        by_hidden, by_squares = below[: hidden.size], below[hidden.size : 2 * hidden.size]
        _multiply(table, gradient, False, mu[first:], True, by_hidden, rows, units, outputs, False)
        _multiply(table, through, False, variance[first:], True, by_squares, rows, units, outputs, False)
        gradient = _buffer(work, layers, rows, number - 1, 0)
        through, slopes = _buffer(work, layers, rows, number - 1, 1), _buffer(work, layers, rows, number - 1, 4)
        _before_activation(by_hidden, by_squares, hidden, slopes, through, gradient)


def workspace_of_outputs(layers: Integers, weights: int, rows: int, draws: int) -> int:
    """Numbers that `draw_outputs` needs room for, of P weights, B rows and S draws."""
    return 3 * weights + rows * (2 * int(layers[0, INNER]) + draws) + room_of_buffers(layers, rows * draws)


@compiled(
    "void(float32[::1], float32[::1], int64[:,::1], float32[:,::1], float32[::1], int64[::1], int64, int64,"
    " float32[::1], float32[:,::1], uint64)"
)
def draw_outputs(
    mu: Floats,
    rho: Floats,
    layers: Integers,
    features: Floats,
    reads: Floats,
    numbers: Integers,
    draws: int,
    activation: int,
    work: Floats,
    outputs: Floats,
    key: Any,
) -> None:
    """Return outputs of rows under draws of their own, for one member.

    Args:
        mu: Means of the weights, ``[P]``.
        rho: Their unconstrained scales.
        layers: The table of layers.
        features: Encoded rows, ``[N, D]``.
        reads: 1 where the member reads an input, ``[D]``.
        numbers: Numbers of the rows, ``[B]``.
        draws: Draws of each row, S.
        activation: `RELU`, `SILU` or `SIGMOID`.
        work: Room (`workspace_of_outputs`).
        outputs: To be filled, ``[S B, outputs]``, draw-major.
        key: Of the normal numbers.
    """
    threads = own_threads(1)
    count, rows, many = mu.size, len(numbers), len(numbers) * draws
    sigma, variance, slope = [work[which * count : (which + 1) * count] for which in range(3)]
    at, size = 3 * count, rows * layers[0, INNER]
    inputs, squares, ones = work[at : at + size], work[at + size : at + 2 * size], work[at + 2 * size :][:many]
    buffers, ones[:] = work[at + 2 * size + many :], ONE
    gather(features, reads, numbers, inputs, squares)
    scales(rho, sigma, variance, slope)
    forward(
        np.empty(10, np.int64),
        layers,
        mu,
        variance,
        inputs,
        squares,
        ones,
        buffers,
        rows,
        draws,
        activation,
        key,
        0,
    )
    outputs[:] = last_values(buffers, layers, many)
    own_threads(threads)
