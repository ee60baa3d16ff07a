"""Linear Thompson sampling: an exact Bayesian linear regression of each arm's rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.bandit_parts.problems import Problem

__all__ = ["linear_thompson"]

PRECISION, SHAPE, RATE = 0.25, 6.0, 6.0
"""Prior precision of a weight over that of the noise; shape and rate of the noise variance's inverse gamma prior: those
of Riquelme et al. (2018), appendix C."""


def linear_thompson(problem: Problem, seed: int, sigma: float | None = None) -> NDArray[np.int64]:
    """Plays a problem, and learns after every decision.

    The function value of a context under a draw of the weights is Gaussian, ``N(x mu, s^2 x C x)`` with the posterior
    covariance ``s^2 C``. It is drawn as such, and C is updated by the rule of Sherman and Morrison: both are exact.

    Args:
        problem: The problem.
        seed: Seed of the draws.
        sigma: Known standard deviation of the rewards, with a prior standard deviation of 5 for every weight; None: the
            variance of the rewards is learned.

    Returns:
        The chosen arms, ``[T]``.
    """
    generator = np.random.default_rng([seed, 1])
    decisions, arms = problem.rewards.shape
    rows = np.hstack([problem.contexts, np.ones((decisions, 1), dtype=np.float32)]).astype(np.float64)
    inputs = rows.shape[1]
    precision = PRECISION if sigma is None else (sigma / 5.0) ** 2
    covariance = np.tile(np.eye(inputs) / precision, (arms, 1, 1))
    moments, means = np.zeros((arms, inputs)), np.zeros((arms, inputs))
    squares, counts = np.zeros(arms), np.zeros(arms)
    chosen = np.zeros(decisions, dtype=np.int64)
    for number, row in enumerate(rows):
        directions = covariance @ row
        spread = np.maximum(directions @ row, 0.0)
        if sigma is None:
            rate = np.maximum(RATE + 0.5 * (squares - (means * moments).sum(axis=1)), 1e-9)
            variance = rate / generator.gamma(SHAPE + 0.5 * counts)
        else:
            variance = np.full(arms, sigma**2)
        arm = int(np.argmax(means @ row + np.sqrt(variance * spread) * generator.normal(size=arms)))
        chosen[number], reward = arm, problem.rewards[number, arm]
        direction = directions[arm]
        covariance[arm] -= np.outer(direction, direction) / (1.0 + row @ direction)
        moments[arm] += reward * row
        means[arm] = covariance[arm] @ moments[arm]
        squares[arm] += reward**2
        counts[arm] += 1.0
    return chosen
