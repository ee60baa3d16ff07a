"""Scores of fits on held-out rows, and what a difference of two fits is worth.

Held-out rows are scored under the mixture of their judges, the members that have not learned from them: by the
negative log likelihood, and numbers by the CRPS, too.

On a small table the losses of two trials differ by chance, by as much as most choices matter. Both trials are judged on
the same rows, and a row that is hard for one is hard for the other. So the difference is taken row by row, and its
standard error is that of a mean of N differences. The search takes the simpler of two choices unless the other one is
better by more than one standard error (the "one standard error rule" of Breiman et al. 1984, section 3.4.3, for pairs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from murho.model.bbb.fit_rows import LEAST_LOG_DENSITY, Rows, ensemble_of, judge_rows
from murho.model.bbb.likelihood import ClassLikelihood, NumericLikelihood
from murho.model.bbb.network import BayesianNetwork
from murho.model.distributions.target_transforms import Standardisation
from murho.model.seeds import seed_for


@dataclass(frozen=True, slots=True)
class NumberScorer:
    """Negative log likelihood and CRPS, in the target's unit: comparable over fits of any transform.

    Attributes:
        likelihood: The observation model.
        standardisation: Transform, location and scale of the targets in the fit.
        spread: Standard deviation of the targets, their unit: it sets the floor of the log density.
    """

    likelihood: NumericLikelihood
    standardisation: Standardisation
    spread: float

    def parts(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """Return what the predictive is made of, of outputs ``[M, n, P]``: tensors broadcastable to ``[M, n, K]``."""
        return self.likelihood.parts(outputs)

    def scores(self, parts: Sequence[Tensor], targets: Tensor) -> Tensor:
        """Negative log likelihood in nats and CRPS of B rows under the mixture of J judges with S draws, ``[2, B]``.

        Args:
            parts: Parts of the rows, ``[J, S, B, K]`` each, float64.
            targets: ``[B]``, the target's unit.
        """
        predictive = self.likelihood.predictive([part.flatten(0, 1) for part in parts], self.standardisation)
        floor = LEAST_LOG_DENSITY - math.log(self.spread or self.standardisation.scale)
        nll = -predictive.log_density(targets).clamp_min(floor)
        return torch.stack((nll, predictive.crps(targets)))


@dataclass(frozen=True, slots=True)
class ClassScorer:
    """Log loss of class probabilities; see `NumberScorer`.

    Attributes:
        likelihood: The observation model.
    """

    likelihood: ClassLikelihood

    def parts(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """Return the class probabilities."""
        return (self.likelihood.log_probabilities(outputs).exp(),)

    def scores(self, parts: Sequence[Tensor], targets: Tensor) -> Tensor:
        """Log loss in nats, ``[1, B]``; targets are class indices."""
        probabilities = parts[0].flatten(0, 1).mean(dim=0)  # [B, C]
        chosen = probabilities.gather(1, targets.long().unsqueeze(1)).T
        return -chosen.clamp_min(math.exp(LEAST_LOG_DENSITY)).log()


DRAWS = 32
"""Draws per row, divided among the judges of the row."""


def judge_scores(
    network: BayesianNetwork, rows: Rows, targets: Tensor, scorer: NumberScorer | ClassScorer, *, seed: int
) -> Tensor:
    """Scores of every row under each of its judges alone, and under the mixture of them.

    Args:
        network: The fitted network, on the CPU.
        rows: The rows; only members that have not seen a row judge it.
        targets: Targets of the rows, ``[N]``, float64: the target's unit, or class indices.
        scorer: Scores the rows.
        seed: Seed of the draws.

    Returns:
        ``[J + 1, 2, N]``, of classes ``[J + 1, 1, N]``, float64; the mixture last. Judge j is a member of partition j.
    """
    judges = rows.judges(network.architecture.members)
    draws = max(1, DRAWS // judges)

    def parts_of(outputs: Tensor, _: Tensor) -> list[Tensor]:
        parts = (part.expand(*outputs.shape[:2], -1) for part in scorer.parts(outputs))
        return [part.unflatten(1, (draws, -1)).movedim(1, 2) for part in parts]

    kept = judge_rows(network, rows, parts_of, draws=draws, seed=seed_for(seed, "scores"), size=1024)
    scores = []
    for block in torch.arange(len(rows)).split(1024):
        parts = [part[:, block].double().movedim(2, 1) for part in kept]
        together = scorer.scores(parts, targets[block])
        alone = [together]
        if judges > 1:
            of_judges = ([part[judge : judge + 1] for part in parts] for judge in range(judges))
            alone = [scorer.scores(of_judge, targets[block]) for of_judge in of_judges]
        scores.append(torch.stack([*alone, together]))
    return torch.cat(scores, dim=2)


def extrapolate(scores: Tensor, network: BayesianNetwork, rows: Rows) -> Tensor:
    """Scores of every row under all members (`ensemble_score`).

    Args:
        scores: What `judge_scores` returned.
        network: The fitted network.
        rows: The rows.

    Returns:
        ``[2, N]``, of classes ``[1, N]``, float64. If rows have weights, each row's scores are multiplied by its weight
        over the mean weight of these rows.
    """
    # The extrapolation is linear, so it may be made row by row.
    of_all = ensemble_of(scores[:-1].mean(dim=0), scores[-1], network, rows)
    return of_all if rows.weights is None else of_all * (rows.weights / rows.weights.mean()).to(of_all)


def paired_difference(first: Tensor, second: Tensor) -> tuple[float, float]:
    """Loss of one fit less the loss of another, and its standard error, in nats: the mean of `row_differences`.

    Args:
        first: Scores of every row under the first fit, as `row_differences` takes them.
        second: The same under the second fit, for the same rows.
    """
    return mean_and_error(row_differences(first, second))


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """Return the mean over N independent rows, ``[N]``, and its standard error; the error of one row is infinite."""
    error = float(values.std(correction=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return float(values.mean()), error


def row_differences(first: Tensor, second: Tensor) -> Tensor:
    """Loss of one fit less the loss of another for every row, ``[N]``, nats.

    The loss of a row is ``(nll + crps / c) / 2``, where c is the mean CRPS of both fits: to first order, means of it
    differ as `model.training.candidates.Attempt.loss` does.

    Args:
        first: NLL and CRPS of every row under the first fit, ``[2, N]``; of classes the log loss alone, ``[1, N]``.
        second: The same under the second fit, for the same rows.
    """
    differences = first - second
    if len(first) == 1:
        return differences[0]
    return 0.5 * (differences[0] + differences[1] / (0.5 * (first[1] + second[1]).mean()))


def is_better(challenger: Tensor, incumbent: Tensor, *, simpler: bool) -> bool:
    """Whether a challenger replaces the incumbent.

    Args:
        challenger: NLL and CRPS of every row, ``[2, N]``, or the log loss alone, ``[1, N]``.
        incumbent: The same under the incumbent.
        simpler: Whether the challenger is the simpler of the two. It then wins unless it is worse by more than one
            standard error. Otherwise it wins only if it is better by more than one.
    """
    difference, error = paired_difference(challenger, incumbent)
    return difference <= error if simpler else difference < -error
