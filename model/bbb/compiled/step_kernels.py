"""The optimiser steps of one member, compiled: all minibatches of an epoch without a tensor in between.

Members do not interact, so each takes all its steps of an epoch on its own, and threads share the members. What a
member needs stays in the processor's cache from step to step. The formulas are those of the plain step
(`model.bbb.free_energy`), with the gradient written out: of the network (`model.bbb.compiled.network_kernels`), of the
observation models and of the KL. Three quarters of the time goes into the products of the network.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murho.model.bbb.compiled.network_kernels import (
    OUTPUTS,
    Real,
    backward,
    forward,
    gather,
    last_values,
    room_of_buffers,
    scales,
)
from murho.model.bbb.likelihood import NOISE_FLOOR
from murho.model.compiling import ONE, compiled, own_threads, part, widest_vectors
from murho.model.distributions.mixtures import LOG_SQRT_2PI

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

FIXED, HOMOSCEDASTIC, HETEROSCEDASTIC, MIXTURE, BERNOULLI, CATEGORICAL = range(6)
"""Observation models that have compiled steps."""
MOST_NORM, LARGEST = 10.0, 1e300
"""Larger gradients of a member are scaled down to this norm; what is larger than the second number is not finite."""


@compiled("float64(float32[::1], float32[::1])")
def _moment(mu: Floats, variance: Floats) -> Any:
    """``sum(mu^2 + sigma^2)``."""
    widest_vectors()
    total = Real(0.0)
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
    squares = 0.0  # the square of a large gradient is beyond single precision
    for index in range(mu.size):
        first = by_mu[index] + share * precision[index] * (mu[index] - mean[index])
        second = share * (sigma[index] * precision[index] - ONE / sigma[index])
        second = (by_rho[index] * sigma[index] + second) * slope[index]
        by_mu[index], by_rho[index] = first, second
        squares += np.float64(first) * first + np.float64(second) * second
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

    See `model.bbb.number_likelihoods` for the models and `Likelihood.reweight_mean_gradient` for ``beta``.

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


RATE, ROOT, SHARE, BETA, KEEP, NUMBER = range(6)
"""Columns of a schedule, a row for each step: see `_adam`; factor of the KL; ``beta``; the step's number."""
ACTIVATION, DRAWS, KIND, COMPONENTS = range(4)
"""Places in the settings."""
SIGMA, EARLIER_SHARE, EARLIER_VARIANCE = range(3)
"""Places in what is known of the noise: of `FIXED`; of earlier rows (`Likelihood.remember`)."""
MU, RHO, FIRST, SECOND, AVERAGE = 0, 1, 2, 4, 6
"""Places in the state: parameters, and from each of the last three on what belongs to mu and rho."""


def workspace_of_steps(layers: Integers, weights: int, inputs: int, rows: int, components: int) -> int:
    """Numbers that `take_steps` needs room for: P weights, D inputs, B rows and draws a step, K components."""
    widest = int(layers[:, OUTPUTS].max())
    return 5 * weights + rows * (2 * (inputs + 1) + 3 + components + 2 * widest) + room_of_buffers(layers, rows)


@compiled(
    "float64(UniTuple(float32[::1], 8), float32[::1], int64[:,::1], int64[:,::1], float32[:,::1], float32[::1],"
    " float32[::1], float32[::1], int64[::1], int64[::1], float64[:,::1], float32[::1], float32[::1], float64[::1],"
    " float64[::1], float64[::1], int64[::1], float64, float32[::1], uint64)"
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
        layers: The table of layers (`layer_table`).
        groups: First weight of each group, and the first one after it, ``[G, 2]``.
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
        settings: See above, ``[4]``.
        scale: ``T / N``.
        work: Room (`workspace_of_steps`).
        key: Of the member's normal numbers.

    Returns:
        The log likelihood of all rows, times their weights. Where a step isn't finite, NaN: none of the parameters
        has taken it; ``bounds[0]`` is then its number.
    """
    threads = own_threads(1)
    mu, rho = state[MU], state[RHO]
    count, width, draws = mu.size, features.shape[1] + 1, settings[DRAWS]
    table, global_noise, noise_slope = np.empty(10, np.int64), np.zeros(2), np.empty(1, np.float32)
    most, widest, total = np.int64(0), layers[:, OUTPUTS].max(), 0.0
    for step in range(len(schedule)):
        most = max(most, draws * (bounds[step + 1] - bounds[step]))
    numbers = np.empty(most, np.int64)
    sigma, variance, slope, by_mu, by_rho = [work[which * count : (which + 1) * count] for which in range(5)]
    at = 5 * count
    inputs, squares = [work[at + which * most * width : at + (which + 1) * most * width] for which in range(2)]
    at += 2 * most * width
    observed, weights, ones = [work[at + which * most : at + (which + 1) * most] for which in range(3)]
    ones[:] = ONE
    at += 3 * most
    noises = work[at : at + most * settings[COMPONENTS]].reshape((most, settings[COMPONENTS]))
    at += most * settings[COMPONENTS]
    below, buffers = work[at : at + 2 * most * widest], work[at + 2 * most * widest :]
    for step in range(len(schedule)):
        begin, end = bounds[step], bounds[step + 1]
        rows, share = draws * (end - begin), Real(schedule[step, SHARE])
        for row in range(rows):
            numbers[row] = order[begin + row % (end - begin)]
            observed[row] = targets[numbers[row]]
            weights[row] = row_weights[numbers[row]] if row_weights.size else ONE
        gather(features, reads, numbers[:rows], inputs, squares)
        scales(rho, sigma, variance, slope)
        number = np.int64(schedule[step, NUMBER])
        forward(table, layers, mu, variance, inputs, squares, ones, buffers, rows, 1, settings[ACTIVATION], key, number)
        outputs = last_values(buffers, layers, rows)
        if settings[KIND] >= BERNOULLI:
            log_density = _classes(outputs, observed, weights, -scale / draws)
        else:
            global_noise[0] = known[SIGMA] if settings[KIND] == FIXED else NOISE_FLOOR + _softplus(float(noise[0]))
            log_density = _gaussians(
                outputs,
                observed,
                weights,
                noises,
                -scale / draws,
                schedule[step, BETA],
                limits,
                global_noise,
                settings[KIND],
                settings[COMPONENTS],
            )
        backward(table, layers, mu, variance, inputs, squares, ones, buffers, by_mu, by_rho, below, rows)
        for group in range(len(groups) if hyperprior[0] > 0.0 else 0):
            start, stop = groups[group, 0], groups[group, 1]
            moment = _moment(mu[start:stop], variance[start:stop])
            wanted = stop - start + 2.0 * hyperprior[0] + 2.0
            prior_precision[start:stop] = wanted / (moment + 2.0 * hyperprior[1])
        norm = _with_divergence(mu, sigma, slope, by_mu, by_rho, prior_mean, prior_precision, share)
        by_noise = 0.0
        if settings[KIND] == HOMOSCEDASTIC:
            of_earlier = 1.0 - known[EARLIER_VARIANCE] / global_noise[0] ** 2
            by_noise = global_noise[1] + known[EARLIER_SHARE] * of_earlier / global_noise[0]
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
