"""One row's Gaussian components from its outputs under S draws, and their moments, compiled.

This is the work of `model.likelihoods` and `model.distributions.predictive` for one row, whose numbers stay in the
CPU's first-level cache. The components of a row are contiguous: the first ones of all draws, then the second ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from murho.model.distributions.quantile_steps import SQRT_HALF
from murho.model.engines.compiled.jit import part, summing_part, widest_vectors
from murho.model.engines.compiled.mixture_sums import exponential

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]
    Floats = NDArray[np.float32]
    Reals = NDArray[np.floating]

__all__ = [
    "Scale",
    "draw_moments",
    "gaussian_moments",
    "is_finite",
    "row_moments",
    "softmax",
    "softplus",
    "standardise",
    "widths",
]

Real = np.float32
ZERO, ONE, TWO = Real(0.0), Real(1.0), Real(2.0)
FURTHEST = Real(87.0)
"""Limit of exponents: ``exp(-FURTHEST)`` counts as 0."""
A1, A2, A3, A4 = Real(2.0 / 3.0), Real(2.0 / 5.0), Real(2.0 / 7.0), Real(2.0 / 9.0)
A5, A6, A7 = Real(2.0 / 11.0), Real(2.0 / 13.0), Real(2.0 / 15.0)


class Scale(NamedTuple):
    """The constants that standardise a row's C components, and its wide component.

    Attributes:
        share: Factor that makes the weights sum to 1.
        centre: Mean of the mixture of C components.
        unit: Its standard deviation.
        wide: Precision of the wide component, standardised; it has the same mean.
        of_wide: Weight of the wide component; 0: there is none.
    """

    share: float
    centre: float
    unit: float
    wide: float
    of_wide: float


@part
def softplus(value: Real) -> Real:
    """``log(1 + exp(x))`` for x >= -87, to a relative error of 3e-7.

    ``log(1 + t)`` is ``2 artanh(t / (2 + t))``, by its series up to the fifteenth power, with an error of at most 1e-8.
    """
    power = exponential(-min(abs(value), FURTHEST))
    place = power / (TWO + power)
    square = place * place
    series = (((((A7 * square + A6) * square + A5) * square + A4) * square + A3) * square + A2) * square + A1
    return max(value, ZERO) + place * (series * square + TWO)


@part
def widths(raw: Floats, floor: Real) -> None:
    """Convert outputs to noise in place, ``[C]``; see `model.likelihoods.heteroscedastic.HeteroscedasticNoise`."""
    widest_vectors()
    for component in range(raw.size):
        raw[component] = floor + softplus(raw[component])


@part
def softmax(logits: Floats, highest: Floats, total: Floats) -> None:
    """Convert logits to weights of each draw's components in place; see `model.likelihoods.mixture.MixtureNoise`.

    Args:
        logits: ``[K, S]``.
        highest: Buffer, ``[S]``.
        total: Buffer, ``[S]``.
    """
    widest_vectors()
    count, samples = logits.shape
    for sample in range(samples):
        highest[sample], total[sample] = logits[0, sample], ZERO
    for component in range(1, count):
        logit = logits[component]
        for sample in range(samples):
            highest[sample] = max(highest[sample], logit[sample])
    for component in range(count):
        logit = logits[component]
        for sample in range(samples):
            logit[sample] = exponential(max(logit[sample] - highest[sample], -FURTHEST))
            total[sample] += logit[sample]
    for sample in range(samples):
        total[sample] = ONE / total[sample]
    for component in range(count):
        logit = logits[component]
        for sample in range(samples):
            logit[sample] *= total[sample]


@part
def draw_moments(means: Reals, noise: Reals, weights: Floats, mean: Reals, variance: Reals) -> None:
    """Compute the mean and the variance of each draw's mixture of K components.

    Args:
        means: ``[K, S]``.
        noise: Standard deviations, ``[K, S]``.
        weights: Of sum 1 over K, ``[K, S]``.
        mean: To be filled, ``[S]``.
        variance: To be filled, ``[S]``.
    """
    widest_vectors()
    count, samples = means.shape
    for sample in range(samples):
        mean[sample] = variance[sample] = ZERO
    for component in range(count):
        centre, share = means[component], weights[component]
        for sample in range(samples):
            mean[sample] += share[sample] * centre[sample]
    for component in range(count):
        centre, share, width = means[component], weights[component], noise[component]
        for sample in range(samples):
            apart = centre[sample] - mean[sample]
            variance[sample] += share[sample] * (apart * apart + width[sample] * width[sample])


@summing_part
def row_moments(mean: Reals, variance: Reals) -> tuple[float, float, float]:
    """Mean, epistemic and aleatoric variance, by the law of total variance; see `model.distributions.predictive.split`.

    Args:
        mean: Function values, ``[S]``.
        variance: Variance of an observation given each draw, ``[S]``.
    """
    widest_vectors()
    total, epistemic, aleatoric = 0.0, 0.0, 0.0
    for sample in range(mean.size):
        total += np.float64(mean[sample])
        aleatoric += np.float64(variance[sample])
    total /= mean.size
    for sample in range(mean.size):
        apart = np.float64(mean[sample]) - total
        epistemic += apart * apart
    return total, epistemic / mean.size, aleatoric / mean.size


@summing_part
def gaussian_moments(means: Reals, noise: Reals) -> tuple[float, float, float]:
    """`row_moments` where each draw gives one Gaussian.

    Args:
        means: ``[S]``.
        noise: Standard deviations, ``[S]``.
    """
    widest_vectors()
    total, epistemic, aleatoric = 0.0, 0.0, 0.0
    for sample in range(means.size):
        width = np.float64(noise[sample])
        total += np.float64(means[sample])
        aleatoric += width * width
    total /= means.size
    for sample in range(means.size):
        apart = np.float64(means[sample]) - total
        epistemic += apart * apart
    return total, epistemic / means.size, aleatoric / means.size


@part
def standardise(
    means: Reals,
    noise: Reals,
    weights: Reals,
    scale: Scale,
    standard_means: Floats,
    precisions: Floats,
    shares: Floats,
) -> None:
    """Standardise the components of a row, ``[C]`` each.

    Args:
        means: Means of the components.
        noise: Their standard deviations.
        weights: Their weights.
        scale: Scale of the row.
        standard_means: To be filled with standardised means.
        precisions: To be filled with those of `model.engines.compiled.mixture_sums.component_sums`.
        shares: To be filled with weights of sum 1.
    """
    widest_vectors()
    per_unit, width, part_of = 1.0 / scale.unit, Real(scale.unit * SQRT_HALF), Real(scale.share)
    for component in range(means.size):
        standard_means[component] = (np.float64(means[component]) - scale.centre) * per_unit
        precisions[component] = width / noise[component]
        shares[component] = weights[component] * part_of


@part
def is_finite(scale: Scale) -> bool:
    """Whether a row can be standardised: mean and standard deviation are finite, and the latter is positive."""
    return math.isfinite(scale.centre) and 0.0 < scale.unit < math.inf
