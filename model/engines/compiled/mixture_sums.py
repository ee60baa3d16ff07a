"""Sums over the components of one row's mixture of Gaussians, compiled.

They are the sums of `model.distributions.mixture_quantiles.StandardMixture`. A component takes one exponential and one
division and stays in registers, where PyTorch goes through memory a dozen times. Arithmetic is in single precision,
eight or sixteen components at a time; the few levels for which this is not accurate enough take double precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.distributions.quantile_steps import DOUBLE, SINGLE, SQRT_HALF
from murho.model.engines.compiled.jit import part, summing_part, widest_vectors
from murho.model.engines.compiled.special_functions import complement, exponential_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]
    Floats = NDArray[np.float32]

__all__ = ["component_sums", "exact_component_sums", "exponential", "moment_sums", "scaled_complement"]

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
