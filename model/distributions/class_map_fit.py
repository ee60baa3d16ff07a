"""Maximum penalised likelihood of the maps that calibrate class probabilities.

Each function takes held-out rows and returns the parameters of one map. Penalties pull a map towards temperature
scaling, and a temperature towards 1. They are those of a prior worth a few rows: with many rows they do not matter,
with few they keep a map from following chance, and a class without rows keeps about its probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Rows", "fit_scaling", "fit_temperature"]

LOG_TEMPERATURE_STD = 0.25
"""Standard deviation of the prior of ``log T``. From 40 rows, 0.5 made probabilities that were right .005 nats worse a
row, 0.25 none (docs/experiments.md)."""
STRENGTH = 5.0
"""Factor of the penalties of structured matrix scaling, 1 in probmetrics. With 1 to 3 maps of 40 to 300 rows followed
chance, with 10 those of 2,500 rows were too stiff."""
LOG_TEMPERATURES = 5.0
"""Temperatures are from exp(-5) to exp(5)."""
HESSIAN_ROWS = 10_000
"""Rows behind second derivatives, at most. Steps need no more; values and gradients are of all rows."""
MAXIMUM_STEPS = 50


class Rows(NamedTuple):
    """Held-out rows.

    Attributes:
        logs: Log-probabilities, ``[n, C]``, float64.
        labels: Class of each row, ``[n]``, from 0.
        weights: Weight of each row, ``[n]``; their sum is the number of equal rows that they are worth.
    """

    logs: Tensor
    labels: Tensor
    weights: Tensor

    def part(self, chosen: Tensor) -> Rows:
        """The rows of a mask or of row numbers."""
        return Rows(self.logs[chosen], self.labels[chosen], self.weights[chosen])

    def loss(self, logits: Tensor) -> Tensor:
        """Weighted sum over rows of the cross entropy of logits ``[n, C]``."""
        return self.weights @ torch.nn.functional.cross_entropy(logits, self.labels, reduction="none")


def fit_temperature(rows: Rows) -> float:
    """Temperature T of ``q = softmax(log p / T)`` (Guo et al. 2017, "On calibration of modern neural networks").

    The log likelihood is concave in ``1 / T``; with the prior of ``log T`` its derivative is followed by Newton steps
    inside an interval that shrinks around the root.
    """
    lower, upper, point = -LOG_TEMPERATURES, LOG_TEMPERATURES, 0.0
    own = rows.logs.gather(1, rows.labels[:, None])[:, 0]
    for _ in range(MAXIMUM_STEPS):
        # point = log(1 / T)
        inverse = float(torch.exp(torch.tensor(point, dtype=torch.float64)))
        probabilities = torch.softmax(rows.logs * inverse, dim=1)
        weighted = probabilities * rows.logs
        mean = weighted.sum(dim=1)
        variance = (weighted * rows.logs).sum(dim=1) - mean.square()
        pull = inverse * float(rows.weights @ (mean - own))
        slope = pull + point / LOG_TEMPERATURE_STD**2
        bend = inverse**2 * float(rows.weights @ variance) + abs(pull)
        lower, upper = (lower, point) if slope > 0.0 else (point, upper)
        step = -slope / (bend + 1.0 / LOG_TEMPERATURE_STD**2)
        if abs(step) < 1e-7:
            break
        point = point + step if lower < point + step < upper else 0.5 * (lower + upper)
    return float(torch.exp(torch.tensor(-point, dtype=torch.float64)))


def fit_scaling(rows: Rows, temperature: float, *, full: bool) -> tuple[Tensor, Tensor]:
    """Weights and intercept of structured matrix scaling, ``q = softmax(W log p + b)``.

    ``W = (I + diag(v) + M) / T``, where M has a zero diagonal. For a given temperature T, v, M and b minimise
    the cross entropy, summed over rows, plus ``STRENGTH (C |v|^2 + C |b|^2 + C (C - 1) |M|^2)`` (Berta, Holzmueller,
    Jordan and Bach 2025, "Structured matrix scaling for multi-class calibration"; the penalties but for `STRENGTH` are
    those of their package probmetrics). The problem is convex.

    With two classes and no M this is beta calibration (Kull, Silva Filho and Flach 2017, "Beta calibration", equation
    5), ``logit q_1 = a log p_1 - b log p_0 + c``, and like there a slope below 0 becomes 0: the diagonal is not
    negative.

    Args:
        rows: The rows.
        temperature: T, from `fit_temperature`.
        full: Fit M, too. Otherwise it is 0.

    Returns:
        ``W`` ``[C, C]``, or its diagonal ``[C]`` where M is 0, and ``b`` ``[C]``.
    """
    classes = rows.logs.shape[1]
    inverse = 1.0 / temperature
    each = torch.arange(classes)
    sources, goals = [each, torch.full_like(each, classes)], [each, each]
    penalties = [torch.full((2 * classes,), STRENGTH * classes, dtype=torch.float64)]
    if full:
        off_diagonal = (~torch.eye(classes, dtype=torch.bool)).nonzero()
        goals.append(off_diagonal[:, 0])
        sources.append(off_diagonal[:, 1])
        strong = STRENGTH * classes * (classes - 1)
        penalties.append(torch.full((len(off_diagonal),), strong, dtype=torch.float64))
    scaled = rows.logs * inverse
    inputs = torch.cat([scaled, torch.ones_like(scaled[:, :1])], dim=1)
    problem = _LinearLogits(
        rows._replace(logs=scaled), inputs, torch.cat(sources), torch.cat(goals), torch.cat(penalties)
    )
    changes = torch.zeros(len(problem.sources), dtype=torch.float64)
    free = torch.ones(len(changes), dtype=torch.bool)
    while True:
        changes = problem.minimum(changes, free)
        negative = torch.zeros_like(free)
        negative[:classes] = free[:classes] & (changes[:classes] < -1.0)
        if not negative.any():
            break
        changes[negative] = -1.0
        free &= ~negative
    diagonal, intercept = inverse * (1.0 + changes[:classes]), changes[classes : 2 * classes]
    if not full:
        return diagonal, intercept
    matrix = torch.diag(diagonal)
    matrix[problem.goals[2 * classes :], problem.sources[2 * classes :]] = inverse * changes[2 * classes :]
    return matrix, intercept


@dataclass(frozen=True)
class _LinearLogits:
    """Logits ``log p + sum of changes``, where change m adds its multiple of one input to the logit of one class.

    Attributes:
        rows: The rows, whose log-probabilities are the logits without changes.
        inputs: ``[n, D]``.
        sources: Number of each change's input, ``[P]``.
        goals: Class that each change adds to, ``[P]``.
        penalties: Of the square of each change, ``[P]``.
    """

    rows: Rows
    inputs: Tensor
    sources: Tensor
    goals: Tensor
    penalties: Tensor

    def minimum(self, start: Tensor, free: Tensor) -> Tensor:
        """The changes of the least penalised loss, by Newton steps from ``start``; only the ``free`` ones move."""
        changes, (value, logits) = start, self._value(start)
        for _ in range(MAXIMUM_STEPS):
            probabilities = torch.softmax(logits, dim=1)
            slope = self._gradient(probabilities)[free] + 2.0 * (self.penalties * changes)[free]
            bend = self._hessian(probabilities, free) + torch.diag(2.0 * self.penalties[free])
            step = torch.zeros_like(changes)
            step[free] = -torch.cholesky_solve(slope[:, None], torch.linalg.cholesky(bend))[:, 0]
            decrease = -float(slope @ step[free])
            if decrease < 1e-7:
                break
            size = 1.0
            while size > 1e-6:
                candidate = changes + size * step
                reached, logits = self._value(candidate)
                if reached < value - 0.1 * size * decrease:
                    break
                size *= 0.5
            else:
                break
            changes, value = candidate, reached
        return changes

    def _value(self, changes: Tensor) -> tuple[float, Tensor]:
        matrix = torch.zeros(self.rows.logs.shape[1], self.inputs.shape[1], dtype=torch.float64)
        matrix[self.goals, self.sources] = changes
        logits = self.rows.logs + self.inputs @ matrix.T
        return float(self.rows.loss(logits) + self.penalties @ changes.square()), logits

    def _gradient(self, probabilities: Tensor) -> Tensor:
        residuals = probabilities.clone()
        residuals[torch.arange(len(residuals)), self.rows.labels] -= 1.0
        return ((residuals * self.rows.weights[:, None]).T @ self.inputs)[self.goals, self.sources]

    def _hessian(self, probabilities: Tensor, free: Tensor) -> Tensor:
        goals, sources = self.goals[free], self.sources[free]
        every = -(-len(probabilities) // HESSIAN_ROWS)
        chances, inputs, weights = probabilities[::every], self.inputs[::every], self.rows.weights[::every]
        weights = weights * (self.rows.weights.sum() / weights.sum())
        spread = inputs[:, sources]
        moved = chances[:, goals] * spread
        same = goals[:, None] == goals
        weighted = moved * weights[:, None]
        return torch.where(same, weighted.T @ spread, 0.0) - weighted.T @ moved
