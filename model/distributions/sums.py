"""Distributions of sums over rows: mixtures of shifted lognormals, and counts of independent events.

Under one draw the sum of independent noise is nearly Gaussian, and skewed if its terms are: it counts as a shifted
lognormal with the sum's mean, variance and third central moment. Without skewness that is a Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from scipy.special import ndtri

from murho.model.arrays import Bools, Doubles, Floats
from murho.model.distributions.mixtures import normal_cdf

LEAST = 1e-300
LEAST_SKEWNESS, MOST_SKEWNESS = 1e-3, 30.0
"""Below the first a distribution counts as Gaussian."""
SECANTS, MOST_STEPS = 6, 80
"""Steps of the secant before every second one halves the bracket, and most steps."""
TOLERANCE = 1e-8
"""Of a quantile, in normal scores or in standard deviations; of a row's probability."""
NEWTON_STEPS = 12
VALUES_AT_A_TIME = 2**17
"""Values in each array of a part, 1 MiB: a part of the work takes about 0.1 s, and little memory."""


def _cdf(scores: Doubles) -> Doubles:
    return normal_cdf(torch.from_numpy(np.ascontiguousarray(scores))).numpy()


def _scores(levels: Doubles) -> Doubles:
    scores: Doubles = ndtri(np.clip(levels, LEAST, 1.0 - 1e-16))
    return scores


@dataclass(frozen=True, slots=True)
class _Skewed:
    """Standardised shifted lognormals, with mean 0, variance 1 and some skewness; arrays of any one shape.

    With ``x = exp(width^2)`` the skewness is ``(x + 2) sqrt(x - 1)``, so ``(x + 2)^2 (x - 1) = skewness^2``: a cubic.

    Attributes:
        gaussian: Where the skewness is next to nothing.
        sign: Of the skewness.
        width: Standard deviation of the logarithm.
        centre: Mean in units of the median.
        unit: Standard deviation in these units.
    """

    gaussian: Bools
    sign: Doubles
    width: Doubles
    centre: Doubles
    unit: Doubles

    @classmethod
    def of(cls, skewness: Doubles) -> Self:
        size = np.clip(np.abs(skewness), LEAST_SKEWNESS, MOST_SKEWNESS)
        root = np.cbrt(1.0 + 0.5 * size * (size + np.sqrt(4.0 + size**2)))
        growth = root + 1.0 / root - 1.0
        return cls(
            np.abs(skewness) < LEAST_SKEWNESS,
            np.where(skewness < 0.0, -1.0, 1.0),
            np.sqrt(np.log(growth)),
            np.sqrt(growth),
            np.sqrt(growth * (growth - 1.0)),
        )

    def scores(self, places: Doubles) -> Doubles:
        """Return normal scores of standardised values."""
        inside = self.centre + self.sign * places * self.unit
        return np.where(self.gaussian, places, self.sign * np.log(np.maximum(inside, LEAST)) / self.width)

    def places(self, score: float) -> Doubles:
        """Return the standardised values at a normal score."""
        power = np.exp(np.minimum(self.width * self.sign * score, 700.0))
        return np.where(self.gaussian, score, self.sign * (power - self.centre) / self.unit)


def describe_totals(
    drawn: Doubles,
    mean: Doubles,
    noise: Doubles,
    third: Doubles,
    std: Doubles,
    levels: Doubles,
    thresholds: Doubles,
) -> tuple[Doubles, Doubles]:
    """Quantiles and exceedance of the totals of G groups and C kinds: mixtures over draws, stretched about their mean.

    Normal scores of a total are nearly a line, so the secant finds a quantile in a few steps.

    Args:
        drawn: Sums of means and of variances under each draw, up to a shift and a factor, ``[2, S, G, C]``.
        mean: Of the mixture, ``[G, C]``.
        noise: Mean over draws of the variance, ``[G, C]``.
        third: That of the third central moment, ``[G, C]``.
        std: Standard deviation to which the mixture is stretched, ``[G, C]``.
        levels: Strictly between 0 and 1, ``[K]``.
        thresholds: ``[G, T]``.

    Returns:
        ``[G, C, K]`` and ``[G, C, T]``.
    """
    functions, variances = drawn
    functions = functions - functions.mean(axis=0)
    deviations = np.sqrt(np.maximum(variances * (noise / np.maximum(variances.mean(axis=0), LEAST)), LEAST))
    skewed = _Skewed.of(third / np.maximum(noise**1.5, LEAST))
    own = np.sqrt(np.maximum(functions.var(axis=0) + noise, LEAST))

    def below(places: Doubles | float) -> Doubles:
        """Distribution function at distances from the mean in standard deviations, ``[G, C]``."""
        mean: Doubles = _cdf(skewed.scores((places * own - functions) / deviations)).mean(axis=0)
        return mean

    def quantile(level: float, score: float) -> Doubles:
        """Quantile in standard deviations from the mean, ``[G, C]``: between those of the single draws."""
        of_draws = (functions + deviations * skewed.places(score)) / own
        lower, upper = of_draws.min(axis=0), of_draws.max(axis=0)
        value: Doubles = np.clip(score, lower, upper)
        earlier, before = np.zeros_like(mean), _scores(below(0.0))
        for step in range(MOST_STEPS):
            share = below(value)
            lower, upper = np.where(share < level, value, lower), np.where(share < level, upper, value)
            now = _scores(share)
            near = (np.abs(now - score) <= TOLERANCE) | (upper - lower <= TOLERANCE)
            if near.all():
                break
            with np.errstate(all="ignore"):
                following = value + (score - now) * (value - earlier) / (now - before)
            inside = (following > lower) & (following < upper) & (step < SECANTS or step % 2 == 0)
            earlier, before = value, now
            value = np.where(near, value, np.where(inside, following, 0.5 * (lower + upper)))
        return value

    quantiles = np.stack([*map(quantile, levels.tolist(), _scores(levels).tolist()), mean], axis=-1)[..., :-1]
    std = np.maximum(std, LEAST)
    apart = (thresholds[:, None] - mean[..., None]) / std[..., None]
    above = [1.0 - below(apart[..., number]) for number in range(thresholds.shape[1])]
    return mean[..., None] + std[..., None] * quantiles, np.stack([*above, mean], axis=-1)[..., :-1]


def exceeding(means: Doubles, variances: Doubles, third: Doubles, threshold: float, goal: Doubles) -> Doubles:
    """Probability that each row exceeds a threshold under each draw, ``[B, S]``.

    All normal scores of a row are moved alike, so that the mean over draws is a given probability of the row.

    Args:
        means: Of each row under each draw, ``[B, S]``.
        variances: Likewise.
        third: Mean over draws of the third central moment, ``[B]``.
        threshold: The threshold.
        goal: The rows' probabilities, ``[B, 1]``.
    """
    deviations = np.sqrt(np.maximum(variances, LEAST))
    skewed = _Skewed.of((third / np.maximum(variances.mean(axis=1) ** 1.5, LEAST))[:, None])
    scores = -skewed.scores((threshold - means) / deviations)
    goal = np.clip(goal, 1e-12, 1.0 - 1e-12)
    shift = np.zeros_like(goal)
    for _ in range(NEWTON_STEPS):
        moved = np.clip(scores + shift, -35.0, 35.0)
        slope = np.exp(-0.5 * moved**2).mean(axis=1, keepdims=True) / math.sqrt(2.0 * math.pi)
        missing = goal - _cdf(moved).mean(axis=1, keepdims=True)
        shift += np.clip(missing / np.maximum(slope, 1e-9), -1.0, 1.0)
        if np.abs(missing).max() <= TOLERANCE:
            break
    return _cdf(scores + shift)


def count_distribution(probabilities: Floats) -> Generator[None, None, Doubles]:
    """Compute the distribution of the number of n independent events; yields between parts of the draws.

    Args:
        probabilities: Of the events under each draw, ``[n, S, C]``.

    Returns:
        Probability of each count, in the mean over draws, ``[C, n + 1]``.
    """
    events, samples, classes = probabilities.shape
    total, size = np.zeros((events + 1, classes)), max(1, VALUES_AT_A_TIME // ((events + 1) * classes))
    for start in range(0, samples, size):
        part = probabilities[:, start : start + size].astype(np.float64)
        counts = np.zeros((events + 1, *part.shape[1:]))
        counts[0] = 1.0
        for number, event in enumerate(part, start=1):
            counts[1 : number + 1] += event * (counts[:number] - counts[1 : number + 1])
            counts[0] *= 1.0 - event
        total += counts.sum(axis=1)
        yield
    mean: Doubles = total.T / samples
    return mean
