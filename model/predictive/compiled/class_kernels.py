"""Class probabilities of the draws of a row, compiled: the formulas of `model.distributions.class_predictive`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from murho.model.compiling import compiled, exponential, part, widest_vectors
from murho.model.distributions.class_predictive import CLOSE, STEPS

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]

TINY = float(np.finfo(np.float64).tiny)


@part
def _normalise(draws: Doubles, total: Doubles, mean: Doubles) -> None:
    """Make the numbers of each draw, ``[C, S]``, sum to 1; fill their mean, ``[C]``. ``total`` is a buffer, ``[S]``."""
    widest_vectors()
    classes, samples = draws.shape
    for sample in range(samples):
        total[sample] = draws[0, sample]
    for number in range(1, classes):
        for sample in range(samples):
            total[sample] += draws[number, sample]
    for number in range(classes):
        whole = 0.0
        for sample in range(samples):
            draws[number, sample] /= total[sample]
            whole += draws[number, sample]
        mean[number] = whole / samples


@part
def _entropy(draws: Doubles) -> float:
    """Return the mean entropy of draws ``[C, S]``, in nats."""
    uncertainty = 0.0
    for number in range(draws.shape[0]):
        for sample in range(draws.shape[1]):
            probability = draws[number, sample]
            if probability > 0.0:
                uncertainty -= probability * math.log(probability)
    mean: float = uncertainty / draws.shape[1]
    return mean


@compiled("void(f4[:, :, ::1], f8[:, :, ::1], f8[:, ::1], f8[::1], i8, i8)")
def pool_draws(logits: Floats, draws: Doubles, pooled: Doubles, entropies: Doubles, start: int, stop: int) -> None:
    """Probabilities of the draws of some rows, their mean, and the mean of their entropies.

    Args:
        logits: ``[S, P, B]``: P is C, or 1 for two classes, whose logit is that of the second one.
        draws: Filled, ``[B, C, S]``.
        pooled: Filled, ``[B, C]``.
        entropies: Filled, ``[B]``.
        start: First row.
        stop: Row after the last one.
    """
    widest_vectors()
    samples, outputs = logits.shape[0], logits.shape[1]
    classes = draws.shape[1]
    buffer = np.empty(samples)
    for row in range(start, stop):
        of_row = draws[row]
        of_row[0, :] = 0.0
        for output in range(outputs):
            for sample in range(samples):
                of_row[classes - outputs + output, sample] = logits[sample, output, row]
        for sample in range(samples):
            buffer[sample] = of_row[0, sample]
        for number in range(1, classes):
            for sample in range(samples):
                buffer[sample] = max(buffer[sample], of_row[number, sample])
        for number in range(classes):
            for sample in range(samples):
                of_row[number, sample] = exponential(of_row[number, sample] - buffer[sample])
        _normalise(of_row, buffer, pooled[row])
        entropies[row] = _entropy(of_row)


@compiled("void(f8[:, :, ::1], f8[:, ::1], f8[:, ::1], f8[::1], i8, i8)")
def settle_draws(draws: Doubles, goal: Doubles, spreads: Doubles, entropies: Doubles, start: int, stop: int) -> None:
    """Draws of some rows with a given mean; see `model.distributions.class_predictive.draws_with_mean`.

    Args:
        draws: Changed, ``[B, C, S]``.
        goal: Their mean, ``[B, C]``.
        spreads: Filled with the standard deviations over draws, ``[B, C]``.
        entropies: Filled with the mean entropies of the draws, ``[B]``.
        start: First row.
        stop: Row after the last one.
    """
    widest_vectors()
    classes, samples = draws.shape[1], draws.shape[2]
    mean, buffer, ratio = np.empty(classes), np.empty(samples), np.empty(classes)
    for row in range(start, stop):
        of_row, of_goal = draws[row], goal[row]
        _normalise(of_row, buffer, mean)
        for turn in range(STEPS + 1):
            furthest = 0.0
            for number in range(classes):
                ratio[number] = of_goal[number] / max(mean[number], TINY)
                furthest = max(furthest, abs(ratio[number] - 1.0))
            if furthest < CLOSE or turn == STEPS:
                break
            for number in range(classes):
                for sample in range(samples):
                    of_row[number, sample] *= ratio[number]
            _normalise(of_row, buffer, mean)
        reach = min(1.0, ratio.min())
        for number in range(classes):
            square = 0.0
            for sample in range(samples):
                apart = reach * (of_row[number, sample] - mean[number])
                square += apart * apart
                of_row[number, sample] = max(0.0, of_goal[number] + apart)
            spreads[row, number] = math.sqrt(square / samples)
        entropies[row] = _entropy(of_row)
