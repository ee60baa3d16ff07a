"""The training step, compiled: all minibatches of an epoch, member by member, without a tensor in between.

Members do not interact, so each takes all its steps of an epoch on its own, and threads share the members. What a
member needs stays in the processor's cache from step to step. The formulas are those of the plain step
(`model.bbb.steps`), with its gradient written out:

- local reparameterisation draws ``h = a + d e`` with mean a, variance ``d^2`` and a standard normal e. With
  ``g = dF/dh``, ``dF/da = g`` and ``dF/d(d^2) = g e / (2 d)``. The 2 cancels against the one of ``d(sigma^2)`` and of
  ``d(x^2)``, so the kernels carry ``g e / d``.
- normal numbers depend on a counter alone (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): two
  rounds of a 32-bit hash of the counter, and the inverse of the normal distribution function (Giles 2012,
  "Approximating the erfinv function"). So a fit is the same to the bit for any number of threads.

Products are MKL's, all else is loops of 16 numbers at a time. Three quarters of the time goes into products.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.bbb.likelihood import NOISE_FLOOR
from murho.model.compiling import (
    ARTANH,
    ONE,
    QUICK_FURTHEST,
    THREE,
    ZERO,
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
from murho.model.distributions.mixtures import LOG_SQRT_2PI

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Integers = NDArray[np.int64]

__all__ = [
    "BERNOULLI",
    "CATEGORICAL",
    "FIXED",
    "HETEROSCEDASTIC",
    "HOMOSCEDASTIC",
    "MIXTURE",
    "draw_outputs",
    "normal",
    "take_steps",
]

require_products()

Real, Word = np.float32, np.uint32
HALF, TWO = Real(0.5), Real(2.0)

FIXED, HOMOSCEDASTIC, HETEROSCEDASTIC, MIXTURE, BERNOULLI, CATEGORICAL = range(6)
"""Observation models that have compiled steps."""
RELU, SILU, SIGMOID = range(3)
"""Activations, in the order of `model.bbb.network.ACTIVATIONS`."""
MOST_NORM, LARGEST = 10.0, 1e300
"""Larger gradients of a member are scaled down to this norm; what is larger than the second number is not finite."""

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


@part
def hashed(word: Any) -> Any:
    """A hash of 32 bits (C. Wellons, "Prospecting for hash functions": xorshift and multiply, twice)."""
    word = Word(word ^ Word(word >> Word(16)))
    word = Word(word * Word(0x21F0AAAD))
    word = Word(word ^ Word(word >> Word(15)))
    word = Word(word * Word(0x735A2D97))
    return Word(word ^ Word(word >> Word(15)))


@part
def normal(counter: Any, key: Any, step: Any) -> Any:
    """A standard normal number from a counter and two keys, all of 32 bits; its size is at most 5.4."""
    word = hashed(Word(hashed(Word(Word(counter) * Word(0x9E3779B9)) ^ Word(key)) + Word(step)))
    place = (Real(np.int32(word >> Word(8))) + HALF) * STEP - ONE  # between -1 and 1
    depth = -quick_log((ONE - place) * (ONE + place))
    near = polynomial(CENTRE[1:], depth - SHIFT, CENTRE[0])
    far = polynomial(TAIL[1:], Real(math.sqrt(depth)) - THREE, TAIL[0])
    return SQRT2 * place * (near if depth < FIVE else far)


@part
def logistic(value: Any) -> Any:
    """``1 / (1 + exp(-x))``, single precision."""
    power = quick_exponential(-min(abs(value), QUICK_FURTHEST))
    share = ONE / (ONE + power)
    return share if value >= ZERO else power * share


# ---------------------------------------------------------------------------------------------------------------------
# Loops over the values of a layer and over the weights of a member.


@compiled("void(float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], uint32, uint32, int64)")
def _draw_hidden(
    means: Floats, variances: Floats, after: Floats, squares: Floats, slopes: Floats, key: Any, step: Any, kind: int
) -> None:
    """Draw values, and apply the activation; ``e / d`` takes the place of the variances. All ``[n]``."""
    widest_vectors()
    for index in range(means.size):  # the compiler makes a loop of each kind
        number, deviation = normal(index, key, step), Real(math.sqrt(variances[index]))
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


@compiled("void(float32[::1], float32[::1], uint32, uint32)")
def _draw(means: Floats, variances: Floats, key: Any, step: int) -> None:
    """Draw the outputs, in place of the means; ``e / d`` takes the place of the variances."""
    widest_vectors()
    for index in range(means.size):
        number, deviation = normal(index, key, step), Real(math.sqrt(variances[index]))
        means[index] += deviation * number
        variances[index] = number / deviation


@compiled("void(float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], float32[::1])")
def _before_activation(
    below: Floats, through: Floats, after: Floats, slopes: Floats, ratios: Floats, gradient: Floats
) -> None:
    """The gradient by a layer's values before the activation; its product with ``e / d`` is in ``ratios`` then."""
    widest_vectors()
    for index in range(below.size):
        slope = (below[index] + through[index] * after[index]) * slopes[index]
        gradient[index] = slope
        ratios[index] *= slope


@compiled("void(float32[::1], float32[::1], float32[::1], float32[::1])")
def _scales(rho: Floats, sigma: Floats, variance: Floats, slope: Floats) -> None:
    """``sigma = softplus(rho)``, its square and its derivative, ``[P]`` each."""
    widest_vectors()
    for index in range(rho.size):
        scale = quick_softplus(rho[index])
        sigma[index], variance[index], slope[index] = scale, scale * scale, logistic(rho[index])


@compiled("float64(float32[::1], float32[::1])")
def _moment(mu: Floats, variance: Floats) -> Any:
    """``sum(mu^2 + sigma^2)``."""
    widest_vectors()
    total = ZERO
    for index in range(mu.size):
        total += mu[index] * mu[index] + variance[index]
    return total


@compiled(
    "float64(float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], float32)"
)
def _with_divergence(
    mu: Floats,
    sigma: Floats,
    slope: Floats,
    by_mu: Floats,
    by_rho: Floats,
    mean: Floats,
    precision: Floats,
    share: Any,
) -> Any:
    """Add the gradient of the KL from ``N(mean, 1 / precision)``; returns the squared norm of the whole.

    Args:
        mu: ``[n]``, as the others.
        sigma: Standard deviations.
        slope: Derivative of sigma by rho.
        by_mu: Gradient of the log likelihood by mu, to be completed.
        by_rho: The gradient by the variance, times 2, to be replaced by that by rho.
        mean: Of the prior.
        precision: Of the prior.
        share: Factor of the KL.
    """
    widest_vectors()
    squares = ZERO
    for index in range(mu.size):
        first = by_mu[index] + share * precision[index] * (mu[index] - mean[index])
        second = share * (sigma[index] * precision[index] - ONE / sigma[index])
        second = (by_rho[index] * sigma[index] + second) * slope[index]
        by_mu[index], by_rho[index] = first, second
        squares += first * first + second * second
    return squares


@compiled(
    "void(float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], float32, float32, float32, float32)"
)
def _adam(
    values: Floats,
    gradient: Floats,
    first: Floats,
    second: Floats,
    average: Floats,
    factor: Any,
    rate: Any,
    root: Any,
    keep: Any,
) -> None:
    """One step of Adam (Kingma & Ba 2015), and one of the running average of the parameters.

    Args:
        values: Parameters, ``[n]``, as the other arrays.
        gradient: Their gradient.
        first: Average of the gradient.
        second: Average of its square.
        average: Average of the parameters.
        factor: Of the gradient, which clips it.
        rate: Learning rate over ``1 - beta1^t``.
        root: ``1 / sqrt(1 - beta2^t)``.
        keep: Weight of the new parameters in their average.
    """
    widest_vectors()
    rise, slow, least = Real(0.1), Real(0.001), Real(1e-8)
    for index in range(values.size):
        slope = gradient[index] * factor
        mean = first[index] + rise * (slope - first[index])
        square = second[index] + slow * (slope * slope - second[index])
        first[index], second[index] = mean, square
        value = values[index] - rate * mean / (Real(math.sqrt(square)) * root + least)
        values[index] = value
        average[index] += keep * (value - average[index])


# ---------------------------------------------------------------------------------------------------------------------
# Observation models: log density and its gradient by the outputs, row by row.


@part
def _softplus(value: float) -> float:
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))


@part
def _sigmoid(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value)) if value > -700.0 else 0.0


@part
def _log_tail(score: float) -> tuple[float, float]:
    """``log Phi(z)`` and its derivative."""
    if score < -30.0:  # Phi(z) is phi(z) / |z| there, up to 0.1 %
        return -0.5 * score * score - LOG_SQRT_2PI - math.log(-score), -score
    tail = 0.5 * math.erfc(-score * math.sqrt(0.5))
    return math.log(tail), math.exp(-0.5 * score * score - LOG_SQRT_2PI) / tail


@compiled(
    "float64(float32[:,::1], float32[::1], float32[::1], float32[:,::1], float64, float64, float64[::1], float64[::1],"
    " int64, int64)"
)
def _gaussians(
    outputs: Floats,
    targets: Floats,
    weights: Floats,
    noises: Floats,
    factor: Any,
    beta: float,
    limits: NDArray[np.float64],
    noise: NDArray[np.float64],
    kind: int,
    count: int,
) -> float:
    """Log density of B rows under K Gaussians; its gradient takes the place of the outputs.

    See `model.bbb.numbers` for the models and `Likelihood.evened` for ``beta``.

    Args:
        outputs: ``[B, P]``.
        targets: Standardised, ``[B]``.
        weights: Of rows, ``[B]``.
        noises: Room for the noise of each Gaussian, ``[B, K]``.
        factor: Of the gradient.
        beta: See there.
        limits: The target's limits; NaN where there are none.
        noise: The noise of all rows, and room for the derivative by it, ``[2]``.
        kind: The model.
        count: K.
    """
    rows, total = len(outputs), 0.0
    shift = np.ones(count)
    if kind >= HETEROSCEDASTIC:
        for k in range(count):
            weighted, all_weights = 0.0, 0.0
            for b in range(rows):
                noises[b, k] = NOISE_FLOOR + _softplus(outputs[b, count + k])
                if beta > 0.0:
                    weighted += weights[b] * noises[b, k] ** (2.0 * beta)
                    all_weights += weights[b]
            if beta > 0.0:
                shift[k] = all_weights / weighted
    else:
        noises[:] = noise[0]
    noise[1] = 0.0
    logs, pulls, spreads = np.zeros(count), np.empty(count), np.empty(count)
    shares = np.ones(count)
    for b in range(rows):
        scale = factor * weights[b]
        if kind == MIXTURE:
            most = -np.inf
            for k in range(count):
                most = max(most, outputs[b, 2 * count + k])
            whole = 0.0
            for k in range(count):
                shares[k] = math.exp(outputs[b, 2 * count + k] - most)
                whole += shares[k]
            shares /= whole
        for k in range(count):
            width = noises[b, k]
            residual = (targets[b] - outputs[b, k]) / width
            if targets[b] >= limits[1]:
                logs[k], pulls[k] = _log_tail(-residual)
                spreads[k] = pulls[k] * residual
            elif targets[b] <= limits[0]:
                logs[k], slope = _log_tail(residual)
                pulls[k] = -slope
                spreads[k] = pulls[k] * residual
            else:
                logs[k], pulls[k] = -0.5 * residual * residual - math.log(width) - LOG_SQRT_2PI, residual
                spreads[k] = residual * residual - 1.0
        most = logs[0]
        for k in range(count):
            most = max(most, logs[k])
        whole = 0.0
        for k in range(count):
            whole += shares[k] * math.exp(logs[k] - most)
        log_density = most + math.log(whole)
        total += weights[b] * log_density
        for k in range(count):
            share = shares[k] * math.exp(logs[k] - log_density) if count > 1 else 1.0
            by_noise = scale * share * spreads[k] / noises[b, k]
            if kind >= HETEROSCEDASTIC:
                even = shift[k] * noises[b, k] ** (2.0 * beta) if beta > 0.0 else 1.0
                outputs[b, k] = even * scale * share * pulls[k] / noises[b, k]
                outputs[b, count + k] = by_noise * _sigmoid(outputs[b, count + k])
                if kind == MIXTURE:
                    outputs[b, 2 * count + k] = scale * (share - shares[k])
            else:
                outputs[b, k] = scale * pulls[k] / noises[b, k]
                noise[1] += by_noise
    return total


@compiled("float64(float32[:,::1], float32[::1], float32[::1], float64)")
def _classes(outputs: Floats, targets: Floats, weights: Floats, factor: float) -> float:
    """Log probability of the class of B rows; its gradient takes the place of the outputs, ``[B, 1]`` or ``[B, C]``."""
    total = 0.0
    for b in range(len(outputs)):
        seen, scale = int(targets[b]), factor * weights[b]
        if outputs.shape[1] == 1:
            logit = float(outputs[b, 0])
            total -= weights[b] * _softplus(-logit if seen == 1 else logit)
            outputs[b, 0] = scale * (seen - _sigmoid(logit))
            continue
        most, whole = outputs[b, 0], 0.0
        for c in range(outputs.shape[1]):
            most = max(most, outputs[b, c])
        for c in range(outputs.shape[1]):
            whole += math.exp(outputs[b, c] - most)
        total += weights[b] * (outputs[b, seen] - most - math.log(whole))
        for c in range(outputs.shape[1]):
            outputs[b, c] = scale * ((c == seen) - math.exp(outputs[b, c] - most) / whole)
    return total


# ---------------------------------------------------------------------------------------------------------------------
# The network, and the steps.

BUFFERS = 5
"""Of each layer and row: means, later the drawn values; variances, later ``e / d``; activations, squares, slopes."""
TRANSPOSED, PLAIN, ONE_BITS = ord("T"), ord("N"), 0x3F800000
INPUTS, OUTPUTS, WEIGHTS, BEFORE = range(4)
"""Columns of a table of layers: sizes, the place of the first weight, the outputs of all layers before. The biases
follow the weights, and the inputs of a skip come last: so a matrix with its biases is one product with a column of
ones."""


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


@part
def _buffer(work: Any, layers: Any, rows: Any, number: Any, which: Any) -> Any:
    outputs = layers[number, OUTPUTS]
    start = rows * (BUFFERS * layers[number, BEFORE] + which * outputs)
    return work[start : start + rows * outputs]


@compiled(
    "void(int64[::1], int64[:,::1], float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], int64, int64,"
    " int64, int64, uint32, uint32)"
)
def _forward(
    table: Integers,
    layers: Integers,
    mu: Floats,
    variance: Floats,
    inputs: Floats,
    squares: Floats,
    work: Floats,
    rows: int,
    copies: int,
    activation: int,
    skip: int,
    key: Any,
    step: Any,
) -> None:
    """The outputs of rows under draws of their own, in the first buffer of the last layer of ``work``.

    Args:
        table: Room for the arguments of BLAS, ``[10]``.
        layers: The table of layers.
        mu: Means of the weights, ``[P]``.
        variance: Their variances.
        inputs: ``[B, D + 1]``, flat, with ones in the last column.
        squares: Their squares.
        work: The buffers.
        rows: B.
        copies: Draws of each row, S; buffers are of S B rows, draw-major.
        activation: `RELU`, `SILU` or `SIGMOID`.
        skip: Whether the last layer reads the inputs, too.
        key: Of the normal numbers; each layer has its own.
        step: Likewise.
    """
    last, many = len(layers) - 1, rows * copies
    width = layers[0, INPUTS] + 1
    for number in range(last + 1):
        outputs, first = layers[number, OUTPUTS], layers[number, WEIGHTS]
        means, variances = _buffer(work, layers, many, number, 0), _buffer(work, layers, many, number, 1)
        start = first
        if number > 0:
            units = layers[number - 1, OUTPUTS]
            start += units * outputs
        if number == 0 or (number == last and skip):
            _multiply(table, inputs, False, mu[start:], False, means, rows, outputs, width, False)
            _multiply(table, squares, False, variance[start:], False, variances, rows, outputs, width, False)
            for copy in range(1, copies):
                at = copy * rows * outputs
                means[at : at + rows * outputs] = means[: rows * outputs]
                variances[at : at + rows * outputs] = variances[: rows * outputs]
        else:
            for row in range(many):
                for output in range(outputs):
                    means[row * outputs + output] = mu[start + output]
                    variances[row * outputs + output] = variance[start + output]
        if number > 0:
            hidden = _buffer(work, layers, many, number - 1, 2)
            hidden_squares = _buffer(work, layers, many, number - 1, 3)
            _multiply(table, hidden, False, mu[first:], False, means, many, outputs, units, True)
            _multiply(table, hidden_squares, False, variance[first:], False, variances, many, outputs, units, True)
        own = Word(hashed(Word(Word(key) + Word(number))))
        if number < last:
            after, after_squares = _buffer(work, layers, many, number, 2), _buffer(work, layers, many, number, 3)
            _draw_hidden(
                means, variances, after, after_squares, _buffer(work, layers, many, number, 4), own, step, activation
            )
        else:
            _draw(means, variances, own, step)


@compiled(
    "void(int64[::1], int64[:,::1], float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], float32[::1],"
    " float32[::1], float32[::1], int64, int64)"
)
def _backward(
    table: Integers,
    layers: Integers,
    mu: Floats,
    variance: Floats,
    inputs: Floats,
    squares: Floats,
    work: Floats,
    by_mu: Floats,
    by_variance: Floats,
    rest: Floats,
    rows: int,
    skip: int,
) -> None:
    """The gradient by all weights from that by the outputs, which is in the first buffer of the last layer.

    Args:
        table: Room for the arguments of BLAS, ``[10]``.
        layers: The table of layers.
        mu: Means of the weights, ``[P]``.
        variance: Their variances.
        inputs: ``[B, D + 1]``, flat, with ones in the last column.
        squares: Their squares.
        work: The buffers, as `_forward` has left them.
        by_mu: The gradient by the means, to be filled, ``[P]``.
        by_variance: The gradient by the variances, times 2, to be filled.
        rest: Room for 3 numbers of each value of the widest layer, and B ones before it.
        rows: B.
        skip: Whether the last layer reads the inputs, too.
    """
    last, width = len(layers) - 1, layers[0, INPUTS] + 1
    ones = rest[:rows]
    ones[:] = ONE
    gradient, through = _buffer(work, layers, rows, last, 0), _buffer(work, layers, rows, last, 1)
    for index in range(gradient.size):
        through[index] *= gradient[index]
    for number in range(last, -1, -1):
        outputs, first = layers[number, OUTPUTS], layers[number, WEIGHTS]
        start = first
        if number > 0:
            units = layers[number - 1, OUTPUTS]
            start += units * outputs
        if number == 0 or (number == last and skip):
            _multiply(table, inputs, True, gradient, False, by_mu[start:], width, outputs, rows, False)
            _multiply(table, squares, True, through, False, by_variance[start:], width, outputs, rows, False)
        else:
            _multiply(table, ones, False, gradient, False, by_mu[start:], 1, outputs, rows, False)
            _multiply(table, ones, False, through, False, by_variance[start:], 1, outputs, rows, False)
        if number == 0:
            return
        hidden = _buffer(work, layers, rows, number - 1, 2)
        hidden_squares = _buffer(work, layers, rows, number - 1, 3)
        _multiply(table, hidden, True, gradient, False, by_mu[first:], units, outputs, rows, False)
        _multiply(table, hidden_squares, True, through, False, by_variance[first:], units, outputs, rows, False)
        below, before = rest[rows : rows + hidden.size], rest[rows + hidden.size : rows + 2 * hidden.size]
        _multiply(table, gradient, False, mu[first:], True, below, rows, units, outputs, False)
        _multiply(table, through, False, variance[first:], True, before, rows, units, outputs, False)
        gradient = _buffer(work, layers, rows, number - 1, 0)
        through, slopes = _buffer(work, layers, rows, number - 1, 1), _buffer(work, layers, rows, number - 1, 4)
        _before_activation(below, before, hidden, slopes, through, gradient)


@part
def _gather(features: Any, reads: Any, numbers: Any, inputs: Any, squares: Any) -> None:
    """Inputs of some rows, what a member does not read as 0, with a column of ones; and their squares."""
    width, at = features.shape[1], 0
    for row in numbers:
        for column in range(width):
            cell = features[row, column] * reads[column]
            inputs[at + column], squares[at + column] = cell, cell * cell
        at += width
        inputs[at], squares[at] = ONE, ONE
        at += 1


RATE, ROOT, SHARE, BETA, KEEP, NUMBER = range(6)
"""Columns of a schedule, a row for each step: see `_adam`; factor of the KL; ``beta``; the step's number."""
ACTIVATION, SKIP, DRAWS, KIND, COMPONENTS = range(5)
"""Places in the settings."""
SIGMA, EARLIER_SHARE, EARLIER_VARIANCE = range(3)
"""Places in what is known of the noise: of `FIXED`; of earlier rows (`Likelihood.remember`)."""
MU, RHO, FIRST, SECOND, AVERAGE = 0, 1, 2, 4, 6
"""Places in the state: parameters, and from each of the last three on what belongs to mu and rho."""


@compiled(
    "float64(UniTuple(float32[::1], 8), float32[::1], int64[:,::1], int64[:,::1], float32[:,::1], float32[::1],"
    " float32[::1], float32[::1], int64[::1], int64[::1], float64[:,::1], float32[::1], float32[::1], float64[::1],"
    " float64[::1], float64[::1], int64[::1], float64, float32[::1], uint32)"
)
def take_steps(
    state: tuple[Floats, ...],
    noise: Floats,
    layers: Integers,
    groups: Integers,
    features: Floats,
    targets: Floats,
    row_weights: Floats,
    reads: Floats,
    order: Integers,
    bounds: Integers,
    schedule: NDArray[np.float64],
    prior_mean: Floats,
    prior_precision: Floats,
    hyperprior: NDArray[np.float64],
    known: NDArray[np.float64],
    limits: NDArray[np.float64],
    settings: Integers,
    scale: float,
    work: Floats,
    key: Any,
) -> float:
    """Take the optimiser steps of an epoch for one member.

    Args:
        state: mu, rho, and their averages: of the gradient, of its square, of the parameters; ``[P]`` each.
        noise: The same of the learned noise of all rows, ``[4]``.
        layers: The table of layers, ``[L, 4]``.
        groups: First and last weight of each tensor, ``[G, 2]``.
        features: Encoded rows, ``[N, D]``.
        targets: Standardised, ``[N]``.
        row_weights: ``[N]``; empty: all are 1.
        reads: 1 where the member reads an input, ``[D]``.
        order: Numbers of the rows of all minibatches, ``[n]``.
        bounds: Places where minibatches begin, and the end, ``[T + 1]``.
        schedule: ``[T, 6]``.
        prior_mean: Means of the prior, ``[P]``.
        prior_precision: Its precisions, likewise; room for them with a hyperprior.
        hyperprior: alpha and beta of `EmpiricalBayesPrior`; alpha 0: there is none.
        known: What is known of the noise.
        limits: The target's limits, ``[2]``; NaN where there are none.
        settings: See above, ``[5]``.
        scale: ``T / N``.
        work: Room; `model.bbb.steps` knows how much.
        key: Of the member's normal numbers.

    Returns:
        The log likelihood of all rows, times their weights. Where a step isn't finite, NaN: none of the parameters
        has taken it; ``bounds[0]`` is then its number.
    """
    threads = own_threads(1)
    mu, rho = state[MU], state[RHO]
    count, depth, width, draws = mu.size, len(layers), features.shape[1] + 1, settings[DRAWS]
    table = np.empty(10, np.int64)
    most = np.int64(0)
    for step in range(len(schedule)):
        most = max(most, draws * (bounds[step + 1] - bounds[step]))
    sigma, variance, slope, by_mu, by_rho = [work[part * count : (part + 1) * count] for part in range(5)]
    at = 5 * count
    inputs, squares = work[at : at + most * width], work[at + most * width : at + 2 * most * width]
    at += 2 * most * width
    observed, weights = work[at : at + most], work[at + most : at + 2 * most]
    at += 2 * most
    noises = work[at : at + most * settings[COMPONENTS]].reshape((most, settings[COMPONENTS]))
    at += most * settings[COMPONENTS]
    widest = np.int64(0)
    for number in range(depth):
        widest = max(widest, layers[number, OUTPUTS])
    rest, buffers = work[at : at + most * (1 + 2 * widest)], work[at + most * (1 + 2 * widest) :]
    numbers, global_noise, total = np.empty(most, np.int64), np.zeros(2), 0.0
    noise_slope = np.empty(1, np.float32)
    for step in range(len(schedule)):
        begin, end = bounds[step], bounds[step + 1]
        rows, share = draws * (end - begin), Real(schedule[step, SHARE])
        word = Word(np.int64(schedule[step, NUMBER]))
        for row in range(rows):
            numbers[row] = order[begin + row % (end - begin)]
            observed[row] = targets[numbers[row]]
            weights[row] = row_weights[numbers[row]] if row_weights.size else ONE
        _gather(features, reads, numbers[:rows], inputs, squares)
        _scales(rho, sigma, variance, slope)
        _forward(
            table,
            layers,
            mu,
            variance,
            inputs,
            squares,
            buffers,
            rows,
            1,
            settings[ACTIVATION],
            settings[SKIP],
            key,
            word,
        )
        outputs = _buffer(buffers, layers, rows, depth - 1, 0).reshape((rows, layers[depth - 1, OUTPUTS]))
        if settings[KIND] >= BERNOULLI:
            log_density = _classes(outputs, observed[:rows], weights, -scale / draws)
        else:
            global_noise[0] = known[SIGMA] if settings[KIND] == FIXED else NOISE_FLOOR + _softplus(float(noise[0]))
            log_density = _gaussians(
                outputs,
                observed[:rows],
                weights,
                noises,
                -scale / draws,
                schedule[step, BETA],
                limits,
                global_noise,
                settings[KIND],
                settings[COMPONENTS],
            )
        _backward(table, layers, mu, variance, inputs, squares, buffers, by_mu, by_rho, rest, rows, settings[SKIP])
        for group in range(len(groups) if hyperprior[0] > 0.0 else 0):
            start, stop = groups[group, 0], groups[group, 1]
            moment = _moment(mu[start:stop], variance[start:stop])
            wanted = stop - start + 2.0 * hyperprior[0] + 2.0
            prior_precision[start:stop] = wanted / (moment + 2.0 * hyperprior[1])
        norm = _with_divergence(mu, sigma, slope, by_mu, by_rho, prior_mean, prior_precision, share)
        by_noise = 0.0
        if settings[KIND] == HOMOSCEDASTIC:
            width_now = global_noise[0]
            by_noise = (
                global_noise[1] + known[EARLIER_SHARE] * (1.0 - known[EARLIER_VARIANCE] / width_now**2) / width_now
            )
            by_noise *= _sigmoid(float(noise[0]))
            norm += by_noise**2
        norm = math.sqrt(norm)
        if not abs(norm + log_density) < LARGEST:  # NaN is not below it either
            bounds[0] = step
            own_threads(threads)
            return np.nan
        total += log_density
        factor = Real(min(1.0, MOST_NORM / norm)) if norm > 0.0 else ONE
        rate, root, keep = Real(schedule[step, RATE]), Real(schedule[step, ROOT]), Real(schedule[step, KEEP])
        _adam(mu, by_mu, state[FIRST], state[SECOND], state[AVERAGE], factor, rate, root, keep)
        _adam(rho, by_rho, state[FIRST + 1], state[SECOND + 1], state[AVERAGE + 1], factor, rate, root, keep)
        if settings[KIND] == HOMOSCEDASTIC:
            noise_slope[0] = by_noise
            _adam(noise[0:1], noise_slope, noise[1:2], noise[2:3], noise[3:4], factor, rate, root, keep)
    own_threads(threads)
    return total


@compiled(
    "void(float32[::1], float32[::1], int64[:,::1], float32[:,::1], float32[::1], int64[::1], int64, int64, int64,"
    " float32[::1], float32[:,::1], uint32)"
)
def draw_outputs(
    mu: Floats,
    rho: Floats,
    layers: Integers,
    features: Floats,
    reads: Floats,
    numbers: Integers,
    copies: int,
    activation: int,
    skip: int,
    work: Floats,
    outputs: Floats,
    key: Any,
) -> None:
    """Outputs of rows under draws of their own, for one member.

    Args:
        mu: Means of the weights, ``[P]``.
        rho: Their unconstrained scales.
        layers: The table of layers.
        features: Encoded rows, ``[N, D]``.
        reads: 1 where the member reads an input, ``[D]``.
        numbers: Numbers of the rows, ``[B]``.
        copies: Draws of each row, S.
        activation: `RELU`, `SILU` or `SIGMOID`.
        skip: Whether the last layer reads the inputs, too.
        work: Room; `model.bbb.steps` knows how much.
        outputs: To be filled, ``[S B, outputs]``, draw-major.
        key: Of the normal numbers.
    """
    threads = own_threads(1)
    count, rows, width = mu.size, len(numbers), features.shape[1] + 1
    table = np.empty(10, np.int64)
    at = 2 * rows * width
    inputs, squares = work[: rows * width], work[rows * width : at]
    _gather(features, reads, numbers, inputs, squares)
    variance = work[at + count : at + 2 * count]
    _scales(rho, work[at : at + count], variance, work[at + 2 * count : at + 3 * count])
    buffers = work[at + 3 * count :]
    _forward(table, layers, mu, variance, inputs, squares, buffers, rows, copies, activation, skip, key, Word(0))
    outputs[:] = _buffer(buffers, layers, rows * copies, len(layers) - 1, 0).reshape(outputs.shape)
    own_threads(threads)
