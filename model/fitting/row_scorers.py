"""Scores of held-out rows under the mixture of their judges: of numbers, and of classes.

A scorer keeps what it needs of the outputs of a chunk of rows, and later scores the mixture of all draws. The first
score is the negative log likelihood; the second one is a proper score that is easier to read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.distributions.transforms import Standardisation
    from murho.model.likelihoods.class_likelihood import ClassLikelihood
    from murho.model.likelihoods.likelihood import NumericLikelihood

__all__ = ["LEAST_LOG_DENSITY", "ClassScorer", "NumberScorer", "RowScorer"]

LEAST_LOG_DENSITY = -15.0
"""Floor of the log density of a validation row, nats: that of a target 5.3 standard deviations from the mean.

A single cell with a misplaced decimal point may lie thousands of standard deviations off. Without the floor, it alone
would decide when to stop and which observation model to keep."""


class RowScorer(Protocol):
    """Scores rows by the outputs of a network for draws of their judges."""

    def parts(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """What the scores need of the outputs ``[M, n, P]``: one tensor or more, broadcastable to ``[M, n, K]``."""
        ...

    def scores(self, parts: Sequence[Tensor], targets: Tensor) -> Tensor:
        """Scores of B rows under the mixture of J judges with S draws each.

        Args:
            parts: Parts of the rows, ``[J, S, B, K]`` each, float64.
            targets: ``[B]``, the target's unit, or class indices.

        Returns:
            Negative log likelihood in nats and the second score, ``[2, B]``.
        """
        ...


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
        """What the predictive is made of; see `RowScorer.parts`."""
        return self.likelihood.parts(outputs)

    def scores(self, parts: Sequence[Tensor], targets: Tensor) -> Tensor:
        """NLL and CRPS; see `RowScorer.scores`."""
        predictive = self.likelihood.predictive([part.flatten(0, 1) for part in parts], self.standardisation)
        floor = LEAST_LOG_DENSITY - math.log(self.spread or self.standardisation.scale)
        nll = -predictive.log_density(targets).clamp_min(floor)
        return torch.stack((nll, predictive.crps(targets)))


@dataclass(frozen=True, slots=True)
class ClassScorer:
    """Log loss and Brier score of class probabilities.

    Attributes:
        likelihood: The observation model.
    """

    likelihood: ClassLikelihood

    def parts(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """The class probabilities; see `RowScorer.parts`."""
        return (self.likelihood.log_probabilities(outputs).exp(),)

    def scores(self, parts: Sequence[Tensor], targets: Tensor) -> Tensor:
        """Log loss in nats, and the Brier score: the sum of squares over the classes; see `RowScorer.scores`."""
        probabilities = parts[0].flatten(0, 1).mean(dim=0)  # [B, C]
        index = targets.long().unsqueeze(1)
        observed = torch.zeros_like(probabilities).scatter_(1, index, 1.0)
        chosen = probabilities.gather(1, index).squeeze(1)
        log_loss = -chosen.clamp_min(math.exp(LEAST_LOG_DENSITY)).log()
        return torch.stack((log_loss, (probabilities - observed).square().sum(dim=1)))
