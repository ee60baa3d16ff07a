"""Scores of predictives of numbers: log-likelihood, RMSE, coverage, and entropy near the data and away from them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from murho.model.distributions.mixtures import Mixture

__all__ = ["FAR", "LEVELS", "away_from_data", "mixture_entropy", "predictive_scores"]

LEVELS = (50, 80, 90, 95)
"""Nominal coverage of the central bands, per cent."""
FAR = (1.0, 2.0, 4.0, 8.0)
"""Rows are moved away from the mean of the training rows: this many times as far as they are."""


def predictive_scores(predictive: Mixture, targets: Tensor, scale: float) -> dict[str, float]:
    """Scores of the test rows.

    Args:
        predictive: Of B rows, standardised.
        targets: ``[B]``, standardised.
        scale: Standard deviation of the training targets: log-likelihood and RMSE are in the target's own unit.

    Returns:
        ``log_likelihood`` (nats per row), ``rmse``, ``coverage_50`` to ``coverage_95`` (shares), and
        ``coverage_error``, the mean absolute difference from the nominal coverage.
    """
    observed = targets.double()
    mean, _ = predictive.moments()
    scores = {
        "log_likelihood": float(predictive.log_density(observed).mean()) - math.log(scale),
        "rmse": float((mean - observed).square().mean().sqrt()) * scale,
    }
    rank = torch.special.ndtr(predictive.normal_score(observed))
    for level in LEVELS:
        scores[f"coverage_{level}"] = float(((rank - 0.5).abs() <= level / 200.0).double().mean())
    errors = [abs(scores[f"coverage_{level}"] - level / 100.0) for level in LEVELS]
    return scores | {"coverage_error": sum(errors) / len(errors)}


def mixture_entropy(predictive: Mixture, seed: int) -> float:
    """Mean differential entropy of the rows' predictives, nats, standardised: minus the mean log density of own draws.

    Args:
        predictive: Of B rows.
        seed: Seed of the draws: one of each component.
    """
    generator = torch.Generator().manual_seed(seed)
    epsilon = torch.empty_like(predictive.means).normal_(generator=generator)
    drawn = predictive.means + predictive.noise * epsilon
    return -float(torch.stack([predictive.log_density(values).mean() for values in drawn]).mean())


def away_from_data(answers: Callable[[Tensor], Mixture], rows: Tensor, seed: int) -> dict[float, float]:
    """Entropy of rows that are moved away from the data, by `FAR`.

    Args:
        answers: Rows ``[B, D]`` to their predictive.
        rows: Standardised rows: the mean of the training rows is 0.
        seed: Seed of the draws.
    """
    return {factor: mixture_entropy(answers(rows * factor), seed) for factor in FAR}
