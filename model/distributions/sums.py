"""Distributions of sums over rows: mixtures of shifted lognormals, and counts of independent events.

Under one draw the sum of independent noise is nearly Gaussian, and skewed if its terms are: it counts as a shifted
lognormal with the sum's mean, variance and third central moment. Without skewness that is a Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch

from murho.model.arrays import Bools, Doubles, Floats, Ints
from murho.model.distributions.mixtures import normal_cdf

LEAST = 1e-300
LEAST_SKEWNESS, MOST_SKEWNESS = 1e-3, 30.0
"""Below the first a distribution counts as Gaussian."""
SECANTS, MOST_STEPS = 6, 80
"""Steps of the secant before every second one halves the bracket, and most steps: the first are nearly always enough,
because the normal scores of a sum are nearly a line."""
TOLERANCE = 1e-8
"""Of a quantile, in normal scores or in standard deviations; of a row's probability."""
NEWTON_STEPS = 12
COUNT_ROUNDING = 1e-6
VALUES_AT_A_TIME = 2**17
"""Values in each array of a part, 1 MiB: a part of the work takes about 0.05 s, and little memory."""


def _cdf(scores: Doubles) -> Doubles:
    return normal_cdf(torch.from_numpy(np.ascontiguousarray(scores))).numpy()


def _scores(levels: Doubles) -> Doubles:
    inside = np.clip(levels, LEAST, 1.0 - 1e-16)
    scores: Doubles = torch.special.ndtri(torch.from_numpy(np.ascontiguousarray(inside))).numpy()
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
        """Normal scores of standardised values."""
        inside = self.centre + self.sign * places * self.unit
        return np.where(self.gaussian, places, self.sign * np.log(np.maximum(inside, LEAST)) / self.width)

    def places(self, score: float) -> Doubles:
        """The standardised values at a normal score."""
        power = np.exp(np.minimum(self.width * self.sign * score, 700.0))
        return np.where(self.gaussian, score, self.sign * (power - self.centre) / self.unit)


@dataclass(frozen=True, slots=True)
class SumMixture:
    """The mixture over draws of the sums of G groups and C kinds, stretched about its mean.

    Attributes:
        means: ``[S, G, C]``.
        deviations: Likewise.
        skewed: Shape of each sum under a draw, ``[G, C]``.
        mean: ``[G, C]``.
        std: Of the mixture before it is stretched, ``[G, C]``.
        ratio: Factor of the distances from the mean, ``[G, C]``.
    """

    means: Doubles
    deviations: Doubles
    skewed: _Skewed
    mean: Doubles
    std: Doubles
    ratio: Doubles

    @classmethod
    def of(cls, drawn: Doubles, mean: Doubles, noise: Doubles, third: Doubles, std: Doubles) -> Self:
        """Build the mixture.

        Args:
            drawn: Sums of means and of variances under each draw, up to a shift and a factor, ``[2, S, G, C]``.
            mean: Of the mixture, ``[G, C]``.
            noise: Mean over draws of the variance, ``[G, C]``.
            third: That of the third central moment, ``[G, C]``.
            std: Standard deviation to which the mixture is stretched, ``[G, C]``.
        """
        means, variances = drawn
        means = means + (mean - means.mean(axis=0))
        deviations = variances * (noise / np.maximum(variances.mean(axis=0), LEAST))
        np.sqrt(np.maximum(deviations, LEAST, out=deviations), out=deviations)
        own = np.sqrt(np.maximum(means.var(axis=0) + noise, LEAST))
        skewed = _Skewed.of(third / np.maximum(noise**1.5, LEAST))
        return cls(means, deviations, skewed, mean, own, np.maximum(std, LEAST) / own)

    def _below(self, values: Doubles) -> Doubles:
        """Distribution function at values ``[G, C]`` before the mixture is stretched."""
        found: Doubles = _cdf(self.skewed.scores((values - self.means) / self.deviations)).mean(axis=0)
        return found

    def _parts(self) -> Iterator[tuple[slice, SumMixture]]:
        """Some groups at a time, and their mixture."""
        samples, groups, classes = self.means.shape
        size = max(1, VALUES_AT_A_TIME // (samples * classes))
        for start in range(0, groups, size):
            some = slice(start, start + size)
            own = (getattr(self.skewed, each.name)[some] for each in fields(self.skewed))
            of_groups = (self.mean[some], self.std[some], self.ratio[some])
            yield some, SumMixture(self.means[:, some], self.deviations[:, some], _Skewed(*own), *of_groups)

    def quantiles(self, levels: Doubles, whole: Ints | None) -> Generator[None, None, Doubles]:
        """Compute quantiles at levels ``[K]``, ``[G, C, K]``; yields between parts of the work.

        A quantile lies between those of the single draws. Steps are the secant's for normal scores within this bracket.

        Args:
            levels: Strictly between 0 and 1.
            whole: Largest possible count of each group, ``[G]``, where sums are whole numbers; None: they aren't.
        """
        found = np.empty((*self.mean.shape, len(levels)))
        for groups, part in self._parts():
            for place, (level, score) in enumerate(zip(levels, _scores(levels), strict=True)):
                of_draws = part.means + part.deviations * part.skewed.places(float(score))
                value = part._quantile(level, score, of_draws.min(axis=0), of_draws.max(axis=0))
                found[groups, :, place] = part.mean + part.ratio * (value - part.mean)
                yield
        if whole is not None:
            found = np.clip(np.ceil(found - 0.5), 0.0, whole[:, None, None])
        return found

    def _quantile(self, level: float, score: float, lower: Doubles, upper: Doubles) -> Doubles:
        """The quantile at a level between two values, ``[G, C]`` each, before the mixture is stretched."""
        value = np.clip(self.mean + self.std * score, lower, upper)
        earlier, before = self.mean, _scores(self._below(self.mean))
        for step in range(MOST_STEPS):
            below = self._below(value)
            lower, upper = np.where(below < level, value, lower), np.where(below < level, upper, value)
            now = _scores(below)
            near = (np.abs(now - score) <= TOLERANCE) | (upper - lower <= TOLERANCE * self.std)
            if near.all():
                break
            with np.errstate(all="ignore"):
                following = value + (score - now) * (value - earlier) / (now - before)
            inside = (following > lower) & (following < upper) & (step < SECANTS or step % 2 == 0)
            earlier, before = value, now
            value = np.where(near, value, np.where(inside, following, 0.5 * (lower + upper)))
        return value

    def exceedance(self, thresholds: Doubles, *, whole: bool) -> Generator[None, None, Doubles]:
        """Compute probabilities of more than thresholds ``[G, T]``, ``[G, C, T]``; yields between parts of the work.

        Args:
            thresholds: See above.
            whole: Whether sums are whole numbers.
        """
        at = np.floor(thresholds) + 0.5 if whole else thresholds
        found = np.empty((*self.mean.shape, at.shape[1]))
        for groups, part in self._parts():
            for place in range(at.shape[1]):
                distances = (at[groups, place, None] - part.mean) / part.ratio
                found[groups, :, place] = 1.0 - part._below(part.mean + distances)
                yield
        return found


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


def count_answers(
    counts: Doubles, mean: Doubles, ratio: Doubles, levels: Sequence[float], thresholds: Sequence[float]
) -> tuple[Doubles, Doubles]:
    """Percentiles ``[C, K]`` and exceedance ``[C, T]`` of counts, stretched about their mean.

    Args:
        counts: Probability of each count, ``[C, n + 1]``.
        mean: ``[C]``.
        ratio: Factor of the distances from the mean, ``[C]``.
        levels: Per cent, ``[K]``.
        thresholds: ``[T]``.
    """
    most, below = counts.shape[-1] - 1, counts.cumsum(axis=-1)
    below /= below[:, -1:]
    wanted, at = np.array(levels) / 100.0 - COUNT_ROUNDING, np.array(thresholds)
    percentiles, exceedance = np.empty((len(below), len(levels))), np.empty((len(below), len(thresholds)))
    for number, (of_class, centre, factor) in enumerate(zip(below, mean, ratio, strict=True)):
        found = np.searchsorted(of_class, wanted)
        percentiles[number] = np.clip(np.rint(centre + factor * (found - centre)), 0, most)
        places = np.floor(np.clip(centre + (at - centre) / factor, -1.0, most)).astype(int)
        exceedance[number] = 1.0 - np.concatenate([[0.0], of_class])[places + 1]
    return percentiles, exceedance
