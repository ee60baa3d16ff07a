"""The map that calibrates class probabilities: its form, its fit by penalised likelihood, its choice on held-out rows.

Each fit takes held-out rows and returns the parameters of one map. Penalties pull a map towards temperature scaling,
and a temperature towards 1. They are those of a prior worth a few rows: with many rows they do not matter, with few
they keep a map from following chance, and a class without rows keeps about its probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from murho.model.json_validation import Count, MisfitError, Stored, one_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BETA",
    "MATRIX",
    "NONE",
    "TEMPERATURE",
    "ClassMap",
    "Rows",
    "fit_class_map",
    "fit_scaling",
    "fit_temperature",
]


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


NONE, TEMPERATURE, BETA, MATRIX = "none", "temperature", "beta", "matrix"
DIAGONAL, FULL = "diagonal", "full"  # Two forms of the matrix.
LEAST_LOG = -100.0
"""Log-probabilities below it count as it, so that a probability of 0 makes no NaN."""
UNIFORM_ROWS = 0.25
"""Weight of a row of equal probabilities of all classes, which is mixed into every map but ``none``. With 1 (as in
probmetrics) nearly separable classes lost .015 nats a row, with 0 a few rows lost a lot."""
FOLDS = 5
MINIMUM_UNITS = 20
"""Below this number of rows (or groups of rows) probabilities are left as they are."""
DIAGONAL_UP_TO, FULL_UP_TO = 100, 20
"""Numbers of classes up to which scaling with a diagonal and with a full matrix is tried. The time of a fit grows with
the cube of the number of parameters."""
CHOICE_UNITS = 10_000
"""Rows (or groups of rows) that decide which map it is, at most. All fit its parameters."""
CAUTION = 1.5
"""Standard errors by which a map must be better than a simpler one on rows that it has not seen. With 1 the log loss
was the same on average, but on the worst of 96 sets 17 % above that without a map, not 6 % (docs/experiments.md)."""


@dataclass(frozen=True)
class ClassMap(Stored):
    """A map from log-probabilities to calibrated log-probabilities of C classes.

    ``q = (1 - e) softmax(W log p + b) + e / C``, where ``e`` is ``0.25 / (n + 1)`` for n held-out rows: no probability
    is much surer than n rows can tell. W and b are

    none
        ``W = I``, ``b = 0`` and ``e = 0``: probabilities stay as they are;
    temperature
        ``W = I / T``;
    beta
        two classes: a diagonal W, not negative, and an intercept;
    matrix
        a diagonal or a full matrix, and an intercept.

    Attributes:
        method: ``none``, ``temperature``, ``beta`` or ``matrix``.
        weights: W: ``()`` for ``none``, one number for ``temperature`` (``1 / T``), C numbers for a diagonal, ``C * C``
            numbers, row by row, for a matrix.
        intercept: b, C numbers; ``()``: it is 0.
        rows: n, the number of held-out rows behind the map.
    """

    method: Annotated[str, one_of(NONE, TEMPERATURE, BETA, MATRIX)] = NONE
    weights: tuple[float, ...] = ()
    intercept: tuple[float, ...] = ()
    rows: Count = 0

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless weights and intercept are as many as the method has."""
        weights, classes = self.weights, len(self.intercept)
        fit = {
            NONE: len(weights) == classes == 0,
            TEMPERATURE: len(weights) == 1 and classes == 0 and weights[0] > 0.0,
            BETA: len(weights) == classes == 2 and min(weights) >= 0.0,
            MATRIX: classes >= 2 and len(weights) in (classes, classes * classes),
        }
        if not fit[self.method]:
            expected = f"the weights of the method {self.method}, and as many intercepts as classes"
            raise MisfitError("weights", expected, weights)

    def log_probabilities(self, pooled: Tensor) -> Tensor:
        """Calibrated log-probabilities.

        Args:
            pooled: Log-probabilities of C classes, ``[..., C]``, normalised or not.

        Returns:
            Normalised ones, ``[..., C]``, of the same type.
        """
        logs = torch.log_softmax(pooled, dim=-1).clamp(min=LEAST_LOG)
        if self.method == NONE:
            return logs
        classes = logs.shape[-1]
        weights = logs.new_tensor(self.weights)
        full = len(self.weights) > classes
        logits = logs @ weights.reshape(classes, classes).T if full else logs * weights
        if self.intercept:
            logits = logits + logs.new_tensor(self.intercept)
        floor = logs.new_tensor(UNIFORM_ROWS / (self.rows + 1))
        mapped = torch.log_softmax(logits, dim=-1) + torch.log1p(-floor)
        return torch.logaddexp(mapped, torch.log(floor / classes))


def fit_class_map(
    log_probabilities: Tensor,
    labels: Tensor,
    *,
    weights: Tensor | None = None,
    units: NDArray[np.generic] | None = None,
    seed: int = 0,
) -> ClassMap:
    """Choose and fit a map on held-out rows.

    Candidates are none, temperature scaling, for two classes beta calibration, for more matrix scaling with a diagonal
    and with a full matrix. Each is fitted without a fifth of the units and judged there by its log loss, five times. A
    candidate replaces a simpler one if its mean log loss is lower by more than `CAUTION` standard errors.

    Args:
        log_probabilities: Of each held-out row, ``[n, C]``.
        labels: Class of each row, ``[n]``, whole numbers from 0 to C - 1.
        weights: Relative weights, ``[n]``, not negative; None: all rows count alike.
        units: Id of each row's exchangeable unit, ``[n]``, such as its group: rows of one unit are held out together.
            None: each row is one.
        seed: Decides which units are held out together.

    Returns:
        The map, ``none`` for fewer than `MINIMUM_UNITS` units or where nothing is better.
    """
    rows, ids, count = _prepared(log_probabilities, labels, weights, units)
    if count < MINIMUM_UNITS:
        return ClassMap(NONE, rows=len(rows.labels))
    name = _choice(rows, ids, count, torch.Generator().manual_seed(seed))
    return ClassMap(NONE, rows=len(rows.labels)) if name == NONE else _fitted(name, rows, fit_temperature(rows))


def _choice(rows: Rows, ids: Tensor, count: int, generator: torch.Generator) -> str:
    """Name of the map that is chosen."""
    place = torch.randperm(count, generator=generator)[ids]
    if count > CHOICE_UNITS:
        judged = place < CHOICE_UNITS
        rows, place, count = rows.part(judged), place[judged], CHOICE_UNITS
    folds = [place % FOLDS == fold for fold in range(FOLDS)]
    temperatures = [fit_temperature(rows.part(~held_out)) for held_out in folds]
    chosen, chosen_losses = NONE, _losses(ClassMap(), rows)
    for name in _candidates(rows.logs.shape[1]):
        losses = torch.empty_like(chosen_losses)
        for held_out, temperature in zip(folds, temperatures, strict=True):
            losses[held_out] = _losses(_fitted(name, rows.part(~held_out), temperature), rows.part(held_out))
        gain, error = _mean_and_error(chosen_losses - losses, rows.weights, place, count)
        if gain > CAUTION * error:
            chosen, chosen_losses = name, losses
    return chosen


def _candidates(classes: int) -> tuple[str, ...]:
    """Names of the maps to try, from the simplest on."""
    if classes == 2:
        return TEMPERATURE, BETA
    limits = {TEMPERATURE: classes, DIAGONAL: DIAGONAL_UP_TO, FULL: FULL_UP_TO}
    return tuple(name for name, limit in limits.items() if classes <= limit)


def _fitted(name: str, rows: Rows, temperature: float) -> ClassMap:
    count = len(rows.labels)
    if name == TEMPERATURE:
        return ClassMap(TEMPERATURE, (1.0 / temperature,), (), count)
    matrix, offsets = fit_scaling(rows, temperature, full=name == FULL)
    return ClassMap(
        BETA if name == BETA else MATRIX, tuple(matrix.reshape(-1).tolist()), tuple(offsets.tolist()), count
    )


def _losses(fitted: ClassMap, rows: Rows) -> Tensor:
    """Log loss of each row, ``[n]``."""
    return -fitted.log_probabilities(rows.logs).gather(1, rows.labels[:, None])[:, 0].clamp(min=LEAST_LOG)


def _prepared(
    log_probabilities: Tensor, labels: Tensor, weights: Tensor | None, units: NDArray[np.generic] | None
) -> tuple[Rows, Tensor, int]:
    """The rows of positive weight, number of each row's unit ``[n]``, and the number of units."""
    logs = torch.log_softmax(log_probabilities.detach().cpu().to(torch.float64), dim=-1).clamp(min=LEAST_LOG)
    labels = labels.detach().cpu().to(torch.int64)
    shares = torch.ones(len(labels), dtype=torch.float64) if weights is None else weights.detach().cpu().double()
    kept = shares > 0.0
    logs, labels, shares = logs[kept], labels[kept], shares[kept]
    if len(labels) == 0:
        return Rows(logs, labels, shares), labels, 0
    # Weighted rows count as many as equal ones of the same information (Kish's effective sample size).
    shares = shares * (shares.sum() / shares.square().sum())
    if units is None:
        return Rows(logs, labels, shares), torch.arange(len(labels)), len(labels)
    ids = torch.from_numpy(np.unique(np.asarray(units)[kept.numpy()], return_inverse=True)[1].reshape(-1))
    return Rows(logs, labels, shares), ids, int(ids.max()) + 1


def _mean_and_error(values: Tensor, weights: Tensor, ids: Tensor, count: int) -> tuple[float, float]:
    """Weighted mean over rows and its standard error, by the spread of the units' parts in it."""
    shares = weights / weights.sum()
    mean = shares @ values
    parts = torch.zeros(count, dtype=torch.float64).index_add_(0, ids, shares * (values - mean))
    return float(mean), float((parts.square().sum() * count / (count - 1)).sqrt())
