"""From the network's outputs to the answer of a row, compiled: moments, percentiles and tails.

The formulas are those of `model.distributions`. A row's components stay in the CPU's first-level cache, and loops over
them use vectors. In single precision twice as many numbers fit into a vector. So a level is searched in single
precision first. Where `model.distributions.quantile_steps.taylor_step` can't prove that this is accurate enough, it is
searched in double precision, by the same code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from murho.model.compiling import (
    QUICK_FURTHEST,
    THREE,
    ZERO,
    Real,
    compiled,
    complement,
    exponential,
    part,
    quick_complement,
    quick_exponential,
    quick_softplus,
    widest_vectors,
)
from murho.model.distributions.quantile_steps import DOUBLE, SINGLE, SQRT_HALF, Precision, cornish_fisher, taylor_step
from murho.model.distributions.target_transforms import LEAST_DEVIATION

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Reals = NDArray[np.floating]
Moments = tuple[float, float, float]

HALF, SIX, REACH = Real(0.5), Real(6.0), Real(SINGLE.reach)


@part
def _widths(raw: Floats, floor: Real) -> None:
    """Convert outputs to noise in place, ``[C]``; see `model.bbb.number_likelihoods.noise_of`."""
    widest_vectors()
    for component in range(raw.size):
        raw[component] = floor + quick_softplus(raw[component])


@part
def _softmax(logits: Floats, highest: Floats, total: Floats) -> None:
    """Convert logits ``[K, S]`` to weights of sum 1 over K in place, with two buffers ``[S]``."""
    widest_vectors()
    count, samples = logits.shape
    for sample in range(samples):
        highest[sample], total[sample] = logits[0, sample], ZERO
    for component in range(1, count):
        for sample in range(samples):
            highest[sample] = max(highest[sample], logits[component, sample])
    for component in range(count):
        for sample in range(samples):
            apart = max(logits[component, sample] - highest[sample], -QUICK_FURTHEST)
            logits[component, sample] = quick_exponential(apart)
            total[sample] += logits[component, sample]
    for component in range(count):
        for sample in range(samples):
            logits[component, sample] /= total[sample]


@part
def _moments(means: Reals, noise: Reals, weights: Floats, mean: Reals, variance: Reals) -> Moments:
    """Mean, epistemic and aleatoric variance, see `model.distributions.predictive.split`.

    Args:
        means: Of K components under S draws, ``[K, S]``.
        noise: Their standard deviations, ``[K, S]``.
        weights: Their weights, of sum 1 over K, ``[K, S]``.
        mean: To be filled with function values, ``[S]``.
        variance: Buffer, ``[S]``.
    """
    widest_vectors()
    count, samples = means.shape
    for sample in range(samples):
        mean[sample] = variance[sample] = ZERO
    for component in range(count):
        for sample in range(samples):
            mean[sample] += weights[component, sample] * means[component, sample]
    for component in range(count):
        for sample in range(samples):
            apart, width = means[component, sample] - mean[sample], noise[component, sample]
            variance[sample] += weights[component, sample] * (apart * apart + width * width)
    total, epistemic, aleatoric = 0.0, 0.0, 0.0
    for sample in range(samples):
        total += np.float64(mean[sample])
        aleatoric += np.float64(variance[sample])
    total /= samples
    for sample in range(samples):
        deviation = np.float64(mean[sample]) - total
        epistemic += deviation * deviation
    return total, epistemic / samples, aleatoric / samples


@part
def _third(means: Reals, noise: Reals, weights: Floats, mean: Reals, logarithm: float) -> float:
    """Mean over draws of the third central moment of the noise.

    Args:
        means: Of K components under S draws, ``[K, S]``.
        noise: Their standard deviations, ``[K, S]``.
        weights: Their weights, of sum 1 over K, ``[K, S]``.
        mean: Function values, ``[S]``.
        logarithm: 1 where components have the skewness of a lognormal with their mean m and variance v, whose third
            central moment is ``(v / m)^2 (3 m + v / m)``; 0 where they are Gaussians.
    """
    widest_vectors()
    count, samples = means.shape
    total = 0.0
    for component in range(count):
        for sample in range(samples):
            value, width = np.float64(means[component, sample]), np.float64(noise[component, sample])
            apart, square = value - np.float64(mean[sample]), width * width
            ratio = square / value if logarithm > 0.0 else 0.0
            third = apart * (apart * apart + 3.0 * square) + ratio * ratio * (3.0 * value + ratio)
            total += np.float64(weights[component, sample]) * third
    average: float = total / samples
    return average


SQRT_PI, SQRT_TWO_PI = math.sqrt(math.pi), math.sqrt(2.0 * math.pi)
FARTHEST, LEAST_VARIANCE = 1e150, LEAST_DEVIATION**2
"""Limit of a score, whose square stays finite."""


@part
def _below_seam(power: float, mean: float, width: float, seam: float, bell: float) -> float:
    """``E[exp(power z); z < 0] = exp(power mean + (power width)^2 / 2) Phi(seam - power width)``.

    For positive ``x = (power width - seam) / sqrt(2)`` this is ``exp(-seam^2 / 2) exp(x^2) erfc(x) / 2``, which stays
    accurate for tiny Phi. For other x it is the exponential minus this term at ``-x``.
    """
    spread = power * width
    excess = spread - seam
    tail = 0.5 * bell * complement(abs(excess) * SQRT_HALF)
    return tail if excess > 0.0 else exponential(power * mean + 0.5 * spread * spread) - tail


@part
def _of_logarithm(mean: float, width: float) -> tuple[float, float]:
    """Mean and standard deviation of ``exp(z)`` below ``z = 0`` and ``1 + z`` above it, for a Gaussian z.

    See `model.distributions.target_transforms.Logarithm.moments`; z counts from the largest training target.
    """
    seam = min(max(-mean / width, -FARTHEST), FARTHEST)
    bell = exponential(-0.5 * seam * seam)
    tail = 0.5 * bell * complement(abs(seam) * SQRT_HALF)
    above, density, line = tail if seam > 0.0 else 1.0 - tail, bell / SQRT_TWO_PI, 1.0 + mean
    first = _below_seam(1.0, mean, width, seam, bell) + line * above + width * density
    second = _below_seam(2.0, mean, width, seam, bell) + (line * line + width * width) * above
    second += width * (2.0 * line + width * seam) * density
    return first, math.sqrt(max(second - first * first, LEAST_VARIANCE))


@part
def _all_of_logarithm(means: Reals, noise: Reals, location: float, scale: float, of_target: Doubles) -> None:
    """Fill with the moments of the target, ``[2, C]``, from those of its standardised logarithm, ``[C]`` each."""
    widest_vectors()
    for component in range(means.size):
        of_target[0, component], of_target[1, component] = _of_logarithm(
            location + scale * np.float64(means[component]), scale * np.float64(noise[component])
        )


@part
def _in_unit(values: Reals, offset: float, factor: float, into: Doubles) -> None:
    """Convert function values to the target's unit, ``[S]``."""
    widest_vectors()
    for sample in range(values.size):
        into[sample] = offset + factor * np.float64(values[sample])


class Scale(NamedTuple):
    """What standardises a row's C components, and its wide component.

    Attributes:
        centre: Mean of the mixture of C components.
        unit: Its standard deviation.
        share: Factor of the weights that makes them sum to 1, with the wide one.
        wide: Standard deviation of the wide component, standardised; it has the same mean.
        of_wide: Weight of the wide component; 0: there is none.
    """

    centre: float
    unit: float
    share: float
    wide: float
    of_wide: float


@part
def _fill(means: Reals, noise: Reals, weights: Reals, scale: Scale, row: Reals) -> None:
    """Standardise components ``[C]`` into a row, see `_tails`, in its precision, and add the wide one."""
    widest_vectors()
    real, last = row.dtype.type, means.size
    per_unit, width, share = 1.0 / scale.unit, real(scale.unit * SQRT_HALF), real(scale.share)
    for component in range(last):
        row[0, component] = real((np.float64(means[component]) - scale.centre) * per_unit)
        row[1, component] = width / real(noise[component])
        row[2, component] = share * real(weights[component])
    row[0, last], row[1, last], row[2, last] = 0.0, SQRT_HALF / scale.wide, scale.of_wide


@part
def _shape(row: Reals) -> tuple[Any, ...]:
    """Return what the search needs to know of standardised components.

    Returns:
        Third and fourth moment about 0, ``sum_c(weight_c / width_c^4)``, the least and the largest mean, and the
        largest variance.
    """
    widest_vectors()
    third, fourth, quartic, variances = ZERO, ZERO, ZERO, ZERO
    least = most = row[0, 0]
    for component in range(row.shape[1]):
        mean, square, weight = row[0, component], row[1, component] * row[1, component], row[2, component]
        variance = HALF / square
        inner = mean * mean + THREE * variance
        third += weight * mean * inner
        fourth += weight * (inner * inner - SIX * variance * variance)
        quartic += weight * square * square
        least, most, variances = min(least, mean), max(most, mean), max(variances, variance)
    return third, fourth, 4.0 * quartic, least, most, variances


@part
def _tails(
    row: Reals, value: Any, sign: Any, reach: Any, exponential: Callable[[Any], Any], complement: Callable[[Any], Any]
) -> tuple[float, float, float, float]:
    """Return the tail (upper for sign 1, lower for -1), the density and its two derivatives at a value.

    Args:
        row: Means, ``1 / (sqrt(2) width)`` and weights of standardised components, ``[3, C]``.
        value: Standardised.
        sign: 1 or -1.
        reach: See `model.distributions.quantile_steps.Precision`.
        exponential: In the precision of the row, as all the others.
        complement: In that precision.
    """
    widest_vectors()
    tail = density = slope = curvature = less = sign - sign
    for component in range(row.shape[1]):
        precision, weight = row[1, component], row[2, component]
        place = (value - row[0, component]) * precision * sign
        place = min(max(place, -reach), reach)
        distance = abs(place)
        bell = exponential(-distance * distance)
        outside = weight * bell * complement(distance)
        tail += outside if place >= 0.0 else weight + weight - outside
        bell *= precision * weight
        density += bell
        bell *= precision
        slope += bell * place
        bell *= precision
        curvature += bell * place * place
        less += bell
    return 0.5 * tail, density / SQRT_PI, -2.0 / SQRT_PI * sign * slope, 2.0 / SQRT_PI * (2.0 * curvature - less)


QUICK_TURNS, TURNS = 6, 100
"""Most steps towards a quantile in single and in double precision."""
FREE_TURNS = 4
"""Steps before every third one halves the bracket."""
EXTREME = 5.0
"""Normal score from which on the search is in double precision from its start."""
MODERATE = 4.0
"""Normal score up to which the guess by moments is followed; beyond it the guess goes on in a straight line."""
TINY = 1e-300
CLOSE = 0.25
"""Largest step from another level's quantile whose series gives a good first guess."""

_cornish_fisher, _taylor_step = part(cornish_fisher), part(taylor_step)


@part
def _levels(
    row: Reals,
    precision: Precision,
    reach: Any,
    exponential: Callable[[Any], Any],
    complement: Callable[[Any], Any],
    shape: tuple[float, ...],
    scores: Doubles,
    values: Doubles,
    settled: NDArray[np.bool_],
) -> None:
    """Find standardised quantiles of a row that are not settled yet.

    Steps are Halley's for the logarithm of the tail, inside a bracket, until a Taylor step is proved to be accurate
    (`model.distributions.quantile_steps.taylor_step`). The series about a level's quantile often gives the next level
    too, without a pass over the components. In double precision a bracket within the tolerance ends the search as
    well, for levels far out, where densities are too small for the proof; and so does a level reached to rounding.

    Args:
        row: See `_tails`, ``[3, C]``.
        precision: That of the row.
        reach: See `_tails`.
        exponential: See `_tails`.
        complement: See `_tails`.
        shape: Skewness, excess kurtosis, and the last four numbers of `_shape`, with the root of the last.
        scores: Normal scores of the levels, rising, ``[L]``.
        values: To be filled, ``[L]``.
        settled: Which levels are found, ``[L]``.
    """
    real = row.dtype.type
    exact = precision.tolerance < SINGLE.tolerance
    value, side, tail, density, slope, curvature = 0.0, 1.0, 0.5, TINY, 0.0, 0.0
    for level in range(scores.size):
        score, step = scores[level], 0.0
        if settled[level] or (abs(score) > EXTREME and not exact):
            continue
        sign = 1.0 if score > 0.0 else -1.0
        goal = 0.5 * math.erfc(abs(score) * SQRT_HALF)
        reached = score * shape[5]  # a quantile lies between the least and the largest one of the components
        lower, upper = shape[3] + min(reached, 0.0) - 1e-5, shape[4] + max(reached, 0.0) + 1e-5
        if side != sign:
            tail, side = 1.0 - tail, sign
        for turn in range(TURNS if exact else QUICK_TURNS):
            missing = (tail - goal) * sign
            step, settled[level] = _taylor_step(value, tail, missing, density, slope, curvature, shape[2], precision)
            if settled[level]:
                break
            following = value + step
            if turn == 0 and not abs(step) <= CLOSE:
                moderate = min(max(score, -MODERATE), MODERATE)
                following = _cornish_fisher(moderate, shape[0], shape[1]) + score - moderate
            if turn:
                if missing > 0.0:
                    lower = max(lower, value)
                else:
                    upper = min(upper, value)
                hazard = density / tail
                newton = math.log(tail / goal) / hazard
                bend = 0.5 * newton * (sign * slope / density + hazard)
                step = sign * newton / max(1.0 + bend, 0.5)
                following = value + step
                if exact and 2.0 * abs(step) <= precision.tolerance:
                    # A narrow component makes steps small, too: only a value on the other side proves the level near.
                    following = value + math.copysign(precision.tolerance, step)
                if exact and (abs(missing) <= 2.0 * precision.rounding * tail or upper - lower <= precision.tolerance):
                    step = 0.0
                    break
            if (turn >= FREE_TURNS and turn % 3 == 1) or not lower < following < upper:
                following = 0.5 * (lower + upper)
            quick = real(following)
            tail, density, slope, curvature = _tails(row, quick, real(sign), reach, exponential, complement)
            value = np.float64(quick)
        values[level] = value + step
        settled[level] |= exact


@part
def find_levels(
    means: Reals,
    noise: Reals,
    weights: Reals,
    scale: Scale,
    scores: Doubles,
    values: Doubles,
    settled: NDArray[np.bool_],
    quick: Floats,
    row: Doubles,
) -> None:
    """Find quantiles of a row's mixture.

    Args:
        means: ``[C]``, in either precision.
        noise: Standard deviations, ``[C]``.
        weights: Weights before the factor ``scale.share``, ``[C]``.
        scale: Scale of the row.
        scores: Normal scores of the levels, rising, ``[L]``.
        values: To be filled with quantiles in the unit of the means, rising, ``[L]``.
        settled: Buffer, ``[L]``.
        quick: Buffer, see `row_of`.
        row: Buffer, see `row_of`.
    """
    _fill(means, noise, weights, scale, quick)
    third, fourth, quartic, least, most, variance = _shape(quick[:, : means.size])
    quartic += scale.of_wide / scale.wide**4
    skewness, kurtosis = min(max(third, -1.0), 1.0), min(max(fourth - 3.0, -1.0), 2.0)
    shape = skewness, kurtosis, quartic, least, most, max(math.sqrt(variance), scale.wide)
    settled[:] = False
    _levels(quick, SINGLE, REACH, quick_exponential, quick_complement, shape, scores, values, settled)
    if not settled.all():
        _fill(means, noise, weights, scale, row)
        _levels(row, DOUBLE, DOUBLE.reach, exponential, complement, shape, scores, values, settled)
    highest = -math.inf
    for level in range(scores.size):
        highest = max(highest, values[level])  # rounding must not swap levels that have the same value
        values[level] = scale.centre + scale.unit * highest


@part
def find_tails(
    means: Reals,
    noise: Reals,
    weights: Reals,
    scale: Scale,
    thresholds: Doubles,
    below: Doubles,
    above: Doubles,
    row: Doubles,
) -> None:
    """Compute both tail probabilities at each threshold; the smaller one is accurate.

    Args:
        means: ``[C]``, in either precision.
        noise: Standard deviations, ``[C]``.
        weights: Weights before the factor ``scale.share``, ``[C]``.
        scale: Scale of the row.
        thresholds: In the unit of the means, ``[T]``.
        below: To be filled with lower tail probabilities, ``[T]``.
        above: To be filled with upper tail probabilities, ``[T]``.
        row: Buffer, see `row_of`.
    """
    _fill(means, noise, weights, scale, row)
    for number in range(thresholds.size):
        value = (thresholds[number] - scale.centre) / scale.unit
        sign = 1.0 if value > 0.0 else -1.0
        tail, _, _, _ = _tails(row, value, sign, DOUBLE.reach, exponential, complement)
        below[number], above[number] = (1.0 - tail, tail) if sign > 0.0 else (tail, 1.0 - tail)


@part
def row_of(components: int, real: Any) -> Any:
    """Return a buffer for a row's components, the wide one, and padding of weight 0; ``[3, ...]``."""
    row = np.zeros((3, (components // 16 + 1) * 16), real)
    row[1] = 1.0
    return row


ROWS = 16
"""Rows that are copied together: their numbers fill a cache line."""


@compiled(
    "void(f4[:,:,:], i8, f4[::1], f8[:,:], f8[::1], UniTuple(f8, 9), i8, i8, "
    "f8[:,::1], f8[:,::1], f8[:,:,::1], f8[:,::1], f8[:,::1])"
)
def answer_rows(
    outputs: Floats,
    count: int,
    known: Floats,
    scores: Doubles,
    thresholds: Doubles,
    target: tuple[float, ...],
    start: int,
    stop: int,
    moments: Doubles,
    values: Doubles,
    tails: Doubles,
    draws: Doubles,
    variances: Doubles,
) -> None:
    """Compute mean, epistemic and aleatoric standard deviation, percentiles, exceedance and function values of rows.

    Args:
        outputs: Outputs of the network, ``[S, P, B]``, in any layout: K means; K noises before softplus, if P is at
            least 2 K; and K weights before softmax, if P is 3 K.
        count: K.
        known: Noise of each draw where it is no output, ``[S]``, standardised.
        scores: Normal scores of the levels, ``[B, L]``, rising.
        thresholds: Of standardised z, ``[T]``.
        target: Lower limit of the noise, standardised; location and scale of z, which is the target, or its logarithm
            minus that of the largest training target; 1 for the logarithm, else 0; the unit and the shift of the
            target, see `model.distributions.target_transforms.Logarithm`; weight, widening and largest noise of the
            wide component, see `model.distributions.mixtures.WideRule`, all 0 where there is none.
        start: First row.
        stop: The row after the last one.
        moments: To be filled, ``[4, B]``, in the target's unit: mean, the two standard deviations, and, if variances
            are asked for, the mean over draws of the third central moment of the noise.
        values: To be filled with percentiles, ``[B, L]``, in the target's unit.
        tails: To be filled with the lower and upper tail probability at each threshold, ``[2, B, T]``.
        draws: To be filled with function values, ``[B, S]``, in the target's unit; not if it is ``[B, 0]``.
        variances: To be filled with the variance of the noise under each draw, likewise.
    """
    widest_vectors()
    samples, blocks = outputs.shape[0], outputs.shape[1] // count  # of outputs: means, noise, weights
    components = count * samples
    floor, location, scale, logarithm, unit_of_y, shift, of_wide, only_widen, most = target
    gathered = np.empty((ROWS, outputs.shape[1] * samples), Real)
    by_output = gathered.reshape((ROWS, outputs.shape[1], samples))
    ones, mean, variance = np.ones(samples, Real), np.empty(samples, Real), np.empty(samples, Real)
    of_target, mean_of_y, variance_of_y = np.empty((2, components)), np.empty(samples), np.empty(samples)
    quick, row = row_of(components, Real), row_of(components, np.float64)
    settled = np.empty(scores.shape[1], np.bool_)
    for number in range(start, stop):
        place = (number - start) % ROWS
        if place == 0:
            rows = min(ROWS, stop - number)
            for output in range(outputs.shape[1]):
                for sample in range(samples):
                    for other in range(rows):
                        by_output[other, output, sample] = outputs[sample, output, number + other]
        means, noise, weights = gathered[place, :components], known, ones
        if blocks > 1:
            noise = gathered[place, components : 2 * components]
            _widths(noise, Real(floor))
        if blocks > 2:
            weights = gathered[place, 2 * components :]
            _softmax(weights.reshape((count, samples)), mean, variance)
        by_draw = means.reshape((count, samples)), noise.reshape((count, samples)), weights.reshape((count, samples))
        centre, epistemic, aleatoric = _moments(by_draw[0], by_draw[1], by_draw[2], mean, variance)
        unit = math.sqrt(epistemic + aleatoric)
        if not unit < math.inf:
            moments[:, number] = values[number] = draws[number] = math.nan
            tails[:, number] = variances[number] = math.nan
            continue
        centre_of_z, unit_of_z = location + scale * centre, scale * unit
        average, epistemic, aleatoric = centre_of_z, epistemic * scale * scale, aleatoric * scale * scale
        if logarithm > 0.0:
            _all_of_logarithm(means, noise, location, scale, of_target)
            of_draws = of_target.reshape((2, count, samples))
            average, epistemic, aleatoric = _moments(of_draws[0], of_draws[1], by_draw[2], mean_of_y, variance_of_y)
        # The wide component, see `model.distributions.predictive.Predictive.with_wide`.
        spread = epistemic + aleatoric
        wider = min(only_widen * unit_of_z * math.sqrt(aleatoric / spread), most)
        wide = math.sqrt(unit_of_z * unit_of_z + wider * wider)
        value, deviation = centre_of_z, wide
        if logarithm > 0.0:
            value, deviation = _of_logarithm(centre_of_z, wide)
        apart = value - average
        aleatoric += of_wide * (deviation * deviation - spread + (1.0 - of_wide) * apart * apart)
        moments[0, number] = unit_of_y * (average + of_wide * apart) - shift
        moments[1, number] = unit_of_y * math.sqrt(epistemic)
        moments[2, number] = unit_of_y * math.sqrt(max(aleatoric, 0.0))
        if draws.shape[1] and logarithm > 0.0:
            _in_unit(mean_of_y, -shift, unit_of_y, draws[number])
        elif draws.shape[1]:
            _in_unit(mean, location, scale, draws[number])
        if variances.shape[1] and logarithm > 0.0:
            _in_unit(variance_of_y, 0.0, unit_of_y * unit_of_y, variances[number])
            third = _third(of_draws[0], of_draws[1], by_draw[2], mean_of_y, 1.0)
            moments[3, number] = third * unit_of_y**3
        elif variances.shape[1]:
            _in_unit(variance, 0.0, scale * scale, variances[number])
            moments[3, number] = _third(by_draw[0], by_draw[1], by_draw[2], mean, 0.0) * scale**3
        of_row = Scale(centre, unit, (1.0 - of_wide) / samples, wide / unit_of_z, of_wide)
        if scores.shape[1]:
            find_levels(means, noise, weights, of_row, scores[number], values[number], settled, quick, row)
        for level in range(scores.shape[1]):
            value = location + scale * values[number, level]
            if logarithm > 0.0:
                value = unit_of_y * math.exp(min(value, 0.0)) * (1.0 + max(value, 0.0)) - shift
            values[number, level] = value
        if thresholds.size:
            find_tails(means, noise, weights, of_row, thresholds, tails[0, number], tails[1, number], row)
