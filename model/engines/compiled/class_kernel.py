"""Class probabilities of draws, compiled, row by row: their pooled mean, and draws with a given mean.

Each number follows the formulas of `model.distributions.class_predictive`. Here the draws of a row stay in the CPU's
first-level cache.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from murho.model.distributions.class_steps import CLOSE, STEPS
from murho.model.engines.compiled.jit import compiled, part, widest_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]
    Floats = NDArray[np.float32]

__all__ = ["pool_draws", "settle_draws"]

TINY = float(np.finfo(np.float64).tiny)


@part
def _entropy(probability: float) -> float:
    return -probability * math.log(probability) if probability > 0.0 else 0.0


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
    largest, total = np.empty(samples), np.empty(samples)
    for row in range(start, stop):
        of_row = draws[row]
        for output in range(outputs):
            for sample in range(samples):
                of_row[classes - outputs + output, sample] = logits[sample, output, row]
        if outputs < classes:
            of_row[0, :] = 0.0
        largest[:] = of_row[0]
        for number in range(1, classes):
            for sample in range(samples):
                largest[sample] = max(largest[sample], of_row[number, sample])
        total[:] = 0.0
        for number in range(classes):
            for sample in range(samples):
                value = math.exp(of_row[number, sample] - largest[sample])
                of_row[number, sample] = value
                total[sample] += value
        uncertainty = 0.0
        for number in range(classes):
            mean = 0.0
            for sample in range(samples):
                probability = of_row[number, sample] / total[sample]
                of_row[number, sample] = probability
                mean += probability
                uncertainty += _entropy(probability)
            pooled[row, number] = mean / samples
        entropies[row] = uncertainty / samples


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
    mean, total = np.empty(classes), np.empty(samples)
    for row in range(start, stop):
        of_row, of_goal = draws[row], goal[row]
        for number in range(classes):
            mean[number] = of_row[number].mean()
        for _ in range(STEPS):
            furthest = 0.0
            for number in range(classes):
                furthest = max(furthest, abs(of_goal[number] / max(mean[number], TINY) - 1.0))
            if furthest < CLOSE:
                break
            total[:] = 0.0
            for number in range(classes):
                ratio = of_goal[number] / max(mean[number], TINY)
                for sample in range(samples):
                    of_row[number, sample] *= ratio
                    total[sample] += of_row[number, sample]
            for number in range(classes):
                sum_of_class = 0.0
                for sample in range(samples):
                    of_row[number, sample] /= total[sample]
                    sum_of_class += of_row[number, sample]
                mean[number] = sum_of_class / samples
        reach = 1.0
        for number in range(classes):
            reach = min(reach, of_goal[number] / max(mean[number], TINY))
        uncertainty = 0.0
        for number in range(classes):
            square = 0.0
            for sample in range(samples):
                apart = reach * (of_row[number, sample] - mean[number])
                square += apart * apart
                probability = max(0.0, of_goal[number] + apart)
                of_row[number, sample] = probability
                uncertainty += _entropy(probability)
            spreads[row, number] = math.sqrt(square / samples)
        entropies[row] = uncertainty / samples
