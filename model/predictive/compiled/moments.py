"""One row's Gaussian components from its outputs under S draws, their moments, and sums over them, compiled.

This is the work of `model.bbb.gaussian` and `model.distributions.predictive` for one row, whose numbers stay in the
CPU's first-level cache. The components of a row are contiguous: the first ones of all draws, then the second ones.

The sums are those of `model.distributions.mixtures.StandardMixture`. A component takes one exponential and one
division and stays in registers, where PyTorch goes through memory a dozen times. Arithmetic is in single precision,
eight or sixteen components at a time; the few levels for which this is not accurate enough take double precision.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from murho.model.distributions.steps import DOUBLE, SINGLE, SQRT_HALF
from murho.model.predictive.compiled.jit import part, summing_part, widest_vectors
from murho.model.predictive.compiled.lognormal import complement, exponential_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]
    Floats = NDArray[np.float32]
    Reals = NDArray[np.floating]

__all__ = [
    "Scale",
    "component_sums",
    "draw_moments",
    "exact_component_sums",
    "exponential",
    "gaussian_moments",
    "is_finite",
    "moment_sums",
    "row_moments",
    "scaled_complement",
    "softmax",
    "softplus",
    "standardise",
    "widths",
]


Real = np.float32
HALF, ONE, TWO, THREE, SIX, ZERO = Real(0.5), Real(1.0), Real(2.0), Real(3.0), Real(6.0), Real(0.0)
REACH = Real(SINGLE.reach)

LOG2_E = Real(1.4426950408889634)
LN2_HIGH, LN2_LOW = Real(0.693359375), Real(-2.12194440e-4)  # products of the first with integers are exact
E2, E3, E4 = Real(5.0000001201e-1), Real(1.6666665459e-1), Real(4.1665795894e-2)
E5, E6, E7 = Real(8.3334519073e-3), Real(1.3981999507e-3), Real(1.9875691500e-4)
BIAS, MANTISSA = np.int32(127), np.int32(23)

C0, C1, C2 = Real(1.2530080080032349), Real(-0.13562127947807312), Real(-0.04756319522857666)
C3, C4, C5 = Real(0.12965242564678192), Real(-0.11925079673528671), Real(0.0682382583618164)
C6, C7, C8 = Real(-0.024005485698580742), Real(0.0026148247998207808), Real(0.0026956736110150814)


@part
def exponential(value: Real) -> Real:
    """``exp(x)`` for x from -87 to 88, to two units in the last place (Moshier, Cephes library, ``expf``)."""
    power = np.floor(value * LOG2_E + HALF)
    rest = value - power * LN2_HIGH - power * LN2_LOW
    series = ((((E7 * rest + E6) * rest + E5) * rest + E4) * rest + E3) * rest + E2
    series = series * (rest * rest) + rest + ONE
    answer: Real = series * np.int32((np.int32(power) + BIAS) << MANTISSA).view(Real)
    return answer


@part
def scaled_complement(value: Real) -> Real:
    """``exp(x^2) erfc(x)`` for x from 0 to 6.5, to a relative error of 3e-7.

    ``(1 + 2 x) exp(x^2) erfc(x)`` is a polynomial in ``(x - 3) / (x + 3)``, after Shepherd & Laframboise (1981,
    Mathematics of Computation 36, 249-253), here of degree 8 from Chebyshev points: 2.3e-8 without rounding.
    """
    rising, shifted = ONE + value + value, value + THREE
    reciprocal = ONE / (rising * shifted)
    place = (value - THREE) * rising * reciprocal
    series = (((C8 * place + C7) * place + C6) * place + C5) * place + C4
    series = (((series * place + C3) * place + C2) * place + C1) * place + C0
    return series * shifted * reciprocal


@summing_part
def component_sums(
    means: Floats, precisions: Floats, weights: Floats, value: Real, sign: Real
) -> tuple[Real, Real, Real, Real, Real]:
    """Sums for the tail and its derivatives, with ``x_c = sign a_c (value - mean_c)``, precision a_c and weight w_c.

    Args:
        means: ``[C]``.
        precisions: ``1 / (sqrt(2) width)``, ``[C]``; width is a component's standard deviation.
        weights: ``[C]``.
        value: The point.
        sign: 1 for the upper tail, -1 for the lower one.

    Returns:
        ``sum w erfc(x)``, ``sum w a exp(-x^2)``, ``sum w a^2 x exp(-x^2)``, ``sum w a^3 x^2 exp(-x^2)`` and
        ``sum w a^3 exp(-x^2)``.
    """
    widest_vectors()
    tail, density, slope, curvature, less = ZERO, ZERO, ZERO, ZERO, ZERO
    for component in range(means.size):
        precision, weight = precisions[component], weights[component]
        place = (value - means[component]) * precision * sign
        place = min(max(place, -REACH), REACH)
        distance = abs(place)
        bell = exponential(-distance * distance)
        complement = bell * scaled_complement(distance)
        tail += weight * (complement if place >= ZERO else TWO - complement)
        bell *= precision * weight
        density += bell
        bell *= precision
        slope += bell * place
        bell *= precision
        curvature += bell * place * place
        less += bell
    return tail, density, slope, curvature, less


@summing_part
def exact_component_sums(
    means: NDArray[np.floating],
    noise: NDArray[np.floating],
    weights: NDArray[np.floating],
    share: float,
    centre: float,
    unit: float,
    value: float,
    sign: float,
) -> tuple[float, float, float, float, float]:
    """`component_sums` in double precision, four or eight components at a time.

    Args:
        means: Not standardised, ``[C]``.
        noise: Standard deviations, not standardised, ``[C]``.
        weights: ``[C]``.
        share: Factor of the weights.
        centre: Mean of the mixture.
        unit: Its standard deviation.
        value: The point, standardised.
        sign: 1 for the upper tail, -1 for the lower one.
    """
    widest_vectors()
    tail, density, slope, curvature, less = 0.0, 0.0, 0.0, 0.0, 0.0
    for component in range(means.size):
        precision, weight = unit * SQRT_HALF / noise[component], share * weights[component]
        place = (value - (means[component] - centre) / unit) * precision * sign
        place = min(max(place, -DOUBLE.reach), DOUBLE.reach)
        distance = abs(place)
        power, less_one = exponential_parts(-distance * distance)
        bell = power * less_one + power
        outside = bell * complement(distance)
        tail += weight * (outside if place >= 0.0 else 2.0 - outside)
        bell *= precision * weight
        density += bell
        bell *= precision
        slope += bell * place
        bell *= precision
        curvature += bell * place * place
        less += bell
    return tail, density, slope, curvature, less


@summing_part
def moment_sums(means: Floats, precisions: Floats, weights: Floats) -> tuple[Real, Real, Real]:
    """Third and fourth moment about 0, and ``sum_c(w_c a_c^4)``, with the arguments of `component_sums`."""
    widest_vectors()
    third, fourth, quartic = ZERO, ZERO, ZERO
    for component in range(means.size):
        mean, weight = means[component], weights[component]
        square = precisions[component] * precisions[component]
        variance = HALF / square
        inner = mean * mean + THREE * variance
        third += weight * mean * inner
        fourth += weight * (inner * inner - SIX * variance * variance)
        quartic += weight * square * square
    return third, fourth, quartic


FURTHEST_EXPONENT = Real(87.0)
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
    power = exponential(-min(abs(value), FURTHEST_EXPONENT))
    place = power / (TWO + power)
    square = place * place
    series = (((((A7 * square + A6) * square + A5) * square + A4) * square + A3) * square + A2) * square + A1
    return max(value, ZERO) + place * (series * square + TWO)


@part
def widths(raw: Floats, floor: Real) -> None:
    """Convert outputs to noise in place, ``[C]``; see `model.bbb.gaussian.HeteroscedasticNoise`."""
    widest_vectors()
    for component in range(raw.size):
        raw[component] = floor + softplus(raw[component])


@part
def softmax(logits: Floats, highest: Floats, total: Floats) -> None:
    """Convert logits to weights of each draw's components in place; see `model.bbb.gaussian.MixtureNoise`.

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
            logit[sample] = exponential(max(logit[sample] - highest[sample], -FURTHEST_EXPONENT))
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
        precisions: To be filled with those of `model.predictive.compiled.moments.component_sums`.
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
