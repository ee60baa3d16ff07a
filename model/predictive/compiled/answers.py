"""From the network's outputs to a row's whole answer, compiled, row by row: numbers and class probabilities.

Each number follows the formulas of `model.distributions.predictive` and `model.distributions.classes`. Here a row's
components or draws stay in the CPU's first-level cache.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from murho.model.distributions.steps import CLOSE, SQRT_HALF, STEPS
from murho.model.predictive.compiled.jit import compiled, part, widest_vectors
from murho.model.predictive.compiled.lognormal import fill_moments, one_moment
from murho.model.predictive.compiled.moments import (
    Scale,
    draw_moments,
    gaussian_moments,
    row_moments,
    softmax,
    standardise,
    widths,
)
from murho.model.predictive.compiled.quantiles import find_levels, find_tails

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]
    Floats = NDArray[np.float32]
    Reals = NDArray[np.floating]
    Moments = tuple[float, float, float]

__all__ = [
    "answer_rows",
    "pool_draws",
    "settle_draws",
]


Real = np.float32
ROWS, TILE = 16, 8
"""Rows and draws that are copied together; 16 numbers fill a cache line."""


@part
def _gather(outputs: Floats, first: int, rows: int, into: Floats) -> None:
    """Copy rows of ``[S, P, B]`` to ``[ROWS, P, S]``, where the outputs of each row are contiguous."""
    samples, count = outputs.shape[0], outputs.shape[1]
    whole = samples // TILE * TILE
    for output in range(count):
        for tile in range(0, whole, TILE):
            for row in range(rows):
                for sample in range(tile, tile + TILE):  # a constant number, so that the compiler unrolls it
                    into[row, output, sample] = outputs[sample, output, first + row]
        for sample in range(whole, samples):
            for row in range(rows):
                into[row, output, sample] = outputs[sample, output, first + row]


@part
def _shift(means: Floats, noise: Floats, location: float, scale: float, into: Doubles) -> None:
    """Convert means and noise to another unit, ``[2, C]``."""
    widest_vectors()
    for component in range(means.size):
        into[0, component] = location + scale * np.float64(means[component])
    for component in range(means.size):
        into[1, component] = scale * np.float64(noise[component])


@part
def _in_unit(values: Reals, offset: float, factor: float, into: Doubles) -> None:
    """Convert function values to the target's unit, ``[S]``."""
    widest_vectors()
    for sample in range(into.size):
        into[sample] = offset + factor * np.float64(values[sample])


@part
def _levels_in_unit(values: Doubles, learned: tuple[float, float], top: float, shift: float) -> None:
    """Convert standardised percentiles to the target's, in place, ``[L]``; see `model.distributions.transforms`."""
    highest = -math.inf
    for level in range(values.size):
        # Rounding must not swap two levels that have the same value.
        highest = max(highest, values[level])
        value = learned[0] + learned[1] * highest
        if math.isfinite(top):
            value = math.exp(min(value, top)) * (1.0 + max(value - top, 0.0)) - shift
        values[level] = value


@part
def _moments_of_logarithm(
    in_unit: Doubles, weights: Floats, of_target: Doubles, mean: Doubles, variance: Doubles, near: float
) -> Moments:
    """Moments of the target where its logarithm was learned, in units of the largest training target.

    Args:
        in_unit: Means and noise of the logarithm, minus that of the largest training target, ``[2, C]``.
        weights: ``[K, S]``; none, ``[0, S]``, where K is 1.
        of_target: To be filled with means and standard deviations, ``[2, C]``.
        mean: To be filled with the function values, ``[S]``, where there are weights.
        variance: Buffer, ``[S]``.
        near: See `model.predictive.compiled.lognormal.fill_moments`.
    """
    fill_moments(in_unit[0], in_unit[1], of_target[0], of_target[1], near)
    if not len(weights):
        return gaussian_moments(of_target[0], of_target[1])
    by_draw = of_target.reshape((2, *weights.shape))
    draw_moments(by_draw[0], by_draw[1], weights, mean, variance)
    return row_moments(mean, variance)


@part
def _wide_in_unit(known: Moments, rule: Moments) -> tuple[Moments, float]:
    """Moments with a wide component, and its noise, without a transform; see `Predictive.with_wide`.

    Args:
        known: Mean, epistemic and aleatoric variance, standardised.
        rule: Weight, widening, and the upper limit of the wider noise.
    """
    mean, epistemic, aleatoric = known
    weight, widening, most = rule
    variance, wider = epistemic + aleatoric, min(widening * math.sqrt(aleatoric), most)
    # The wide component has the mixture's variance plus that of the wider noise: only the latter adds to the variance.
    added = weight * wider * wider
    return (mean, epistemic, aleatoric + added), math.sqrt(variance + wider * wider)


@part
def _wide_of_logarithm(
    known: Moments, centre: float, spread: float, most: float, rule: Moments, near: float
) -> tuple[Moments, float]:
    """`_wide_in_unit` where the logarithm of the target was learned.

    Args:
        known: Mean, epistemic and aleatoric variance of the target, in units of the largest training target.
        centre: Mean of the logarithm, minus that of the largest training target.
        spread: Its standard deviation.
        most: Upper limit of the wider noise of the logarithm.
        rule: Weight and widening; the third number is not used.
        near: See `model.predictive.compiled.lognormal.fill_moments`.
    """
    mean, epistemic, aleatoric = known
    weight, widening, _ = rule
    variance = epistemic + aleatoric
    wider = min(widening * spread * math.sqrt(aleatoric / variance), most)
    noise = math.sqrt(spread * spread + wider * wider)
    value, deviation = one_moment(centre, noise, near)
    apart = value - mean
    added = weight * (deviation * deviation - variance + (1.0 - weight) * apart * apart)
    return (mean + weight * apart, epistemic, max(aleatoric + added, 0.0)), noise


@compiled(
    "void(float32[:,:,:], int64, float32[::1], float32, float64[:,:], float64[::1], UniTuple(float64, 2), "
    "UniTuple(float64, 3), UniTuple(float64, 4), int64, int64, float64[:,::1], float64[:,::1], boolean[::1], "
    "float64[:,:,::1], float64[:,::1])"
)
def answer_rows(
    outputs: Floats,
    count: int,
    known: Floats,
    floor: Real,
    scores: Doubles,
    thresholds: Doubles,
    learned: tuple[float, float],
    wide_rule: tuple[float, float, float],
    logarithm: tuple[float, float, float, float],
    start: int,
    stop: int,
    moments: Doubles,
    values: Doubles,
    settled: NDArray[np.bool_],
    tails: Doubles,
    draws: Doubles,
) -> None:
    """Compute mean, epistemic and aleatoric standard deviation, percentiles, exceedance and function values of rows.

    Args:
        outputs: Outputs of the network, ``[S, P, B]``, in any layout: K means; K noises before softplus, if P is at
            least 2 K; and K weights before softmax, if P is 3 K.
        count: K.
        known: Noise of each draw where it is no output, ``[S]``, standardised.
        floor: Lower limit of the noise, standardised.
        scores: Normal scores of the levels, ``[B, L]``, rising.
        thresholds: ``[T]``, standardised.
        learned: Location and scale of the standardisation.
        wide_rule: Weight, widening, and the upper limit of the wider noise, standardised, see
            `model.distributions.mixtures.WideRule`. Weight 0: there is no wide component.
        logarithm: Top and shift of `model.distributions.transforms.Logarithm`, ``near`` of `fill_moments`, and the
            least deviation in units of the largest training target. An infinite top: there is no transform.
        start: First row.
        stop: The row after the last one.
        moments: To be filled, ``[4, B]``, in the target's unit; the fourth is the standard deviation.
        values: To be filled with percentiles, ``[B, L]``, in the target's unit.
        settled: To be filled, ``[B]``: whether all percentiles of a row are proved to be accurate.
        tails: To be filled with the lower and upper tail probability at each threshold, ``[2, B, T]``.
        draws: To be filled with function values, ``[B, S]``, in the target's unit; not if it is ``[B, 0]``.
    """
    widest_vectors()
    samples, blocks = outputs.shape[0], outputs.shape[1] // count  # of outputs: means, noise, weights
    components, share = count * samples, 1.0 / samples
    location, scale = learned
    top, shift, near, least = logarithm
    of_wide = wide_rule[0]
    rows_of = np.empty((ROWS, outputs.shape[1] * samples), dtype=Real)
    by_output = rows_of.reshape((ROWS, outputs.shape[1], samples))
    standard_means, precisions = np.empty(components, dtype=Real), np.empty(components, dtype=Real)
    shares, ones = np.empty(components, dtype=Real), np.ones(components, dtype=Real)
    mean, variance = np.empty(samples, dtype=Real), np.empty(samples, dtype=Real)
    in_unit, of_target = np.empty((2, components)), np.empty((2, components))
    target_mean, target_variance = np.empty(samples), np.empty(samples)
    levels_settled = np.empty(scores.shape[1], dtype=np.bool_)
    for first in range(start, stop, ROWS):
        rows = min(ROWS, stop - first)
        _gather(outputs, first, rows, by_output)
        for row in range(rows):
            number = first + row
            means, noise, weights = rows_of[row, :components], known, ones
            if blocks > 1:
                noise = rows_of[row, components : 2 * components]
                widths(noise, floor)
            if blocks > 2:
                weights, of_row = rows_of[row, 2 * components :], by_output[row]
                softmax(of_row[2 * count :], mean, variance)
                draw_moments(of_row[:count], of_row[count : 2 * count], of_row[2 * count :], mean, variance)
                known_moments = row_moments(mean, variance)
            else:
                known_moments = gaussian_moments(means, noise)
            centre, wider = known_moments[0], 0.0
            unit = math.sqrt(known_moments[1] + known_moments[2])
            if not math.isfinite(top):
                final_moments = known_moments
                if of_wide > 0.0:
                    final_moments, wider = _wide_in_unit(known_moments, wide_rule)
                offset, factor, least_noise = location, scale, 0.0
                if draws.shape[1]:
                    _in_unit(mean if blocks > 2 else means, offset, factor, draws[number])
            else:
                _shift(means, noise, location - top, scale, in_unit)
                target_moments = _moments_of_logarithm(
                    in_unit, by_output[row][2 * count :], of_target, target_mean, target_variance, near
                )
                final_moments = target_moments
                if of_wide > 0.0:
                    from_top = location - top + scale * centre
                    final_moments, wider = _wide_of_logarithm(
                        final_moments, from_top, scale * unit, scale * wide_rule[2], wide_rule, near
                    )
                    wider /= scale
                factor = math.exp(top)
                offset, least_noise = -shift, least
                if draws.shape[1]:
                    _in_unit(target_mean if blocks > 2 else of_target[0], -shift, factor, draws[number])
            moments[0, number] = offset + factor * final_moments[0]
            moments[1, number] = factor * math.sqrt(final_moments[1])
            moments[2, number] = factor * max(math.sqrt(final_moments[2]), least_noise)
            moments[3, number] = math.sqrt(moments[1, number] ** 2 + moments[2, number] ** 2)
            wide = unit * SQRT_HALF / wider if of_wide > 0.0 else 0.0
            row_scale = Scale(share, centre, unit, wide, of_wide)
            standardise(means, noise, weights, row_scale, standard_means, precisions, shares)
            find_levels(
                standard_means,
                precisions,
                shares,
                means,
                noise,
                weights,
                row_scale,
                scores[number],
                values[number],
                levels_settled,
            )
            settled[number] = levels_settled.all()
            if thresholds.size:
                find_tails(
                    standard_means,
                    precisions,
                    shares,
                    means,
                    noise,
                    weights,
                    row_scale,
                    thresholds,
                    tails[0, number],
                    tails[1, number],
                )
            _levels_in_unit(values[number], learned, top, shift)


TINY = float(np.finfo(np.float64).tiny)


@part
def _entropy(probability: float) -> float:
    return -probability * math.log(probability) if probability > 0.0 else 0.0


@compiled("void(f4[:, :, ::1], f8[:, :, ::1], f8[:, ::1], f8[::1], i8, i8)")
def pool_draws(logits: Floats, draws: Doubles, pooled: Doubles, entropies: Doubles, start: int, stop: int) -> None:
    """Probabilities of the draws of some rows, their mean, and the mean of their entropies.

    Args:
        logits: ``[S, P, B]``: P is C, or 1 for two classes, whose logit is that of the second one.
        draws: Filled, ``[B, C, S]``.
        pooled: Filled, ``[B, C]``.
        entropies: Filled, ``[B]``.
        start: First row.
        stop: Row after the last one.
    """
    widest_vectors()
    samples, outputs = logits.shape[0], logits.shape[1]
    classes = draws.shape[1]
    largest, total = np.empty(samples), np.empty(samples)
    for row in range(start, stop):
        of_row = draws[row]
        for output in range(outputs):
            for sample in range(samples):
                of_row[classes - outputs + output, sample] = logits[sample, output, row]
        if outputs < classes:
            of_row[0, :] = 0.0
        largest[:] = of_row[0]
        for number in range(1, classes):
            for sample in range(samples):
                largest[sample] = max(largest[sample], of_row[number, sample])
        total[:] = 0.0
        for number in range(classes):
            for sample in range(samples):
                value = math.exp(of_row[number, sample] - largest[sample])
                of_row[number, sample] = value
                total[sample] += value
        uncertainty = 0.0
        for number in range(classes):
            mean = 0.0
            for sample in range(samples):
                probability = of_row[number, sample] / total[sample]
                of_row[number, sample] = probability
                mean += probability
                uncertainty += _entropy(probability)
            pooled[row, number] = mean / samples
        entropies[row] = uncertainty / samples


@compiled("void(f8[:, :, ::1], f8[:, ::1], f8[:, ::1], f8[::1], i8, i8)")
def settle_draws(draws: Doubles, goal: Doubles, spreads: Doubles, entropies: Doubles, start: int, stop: int) -> None:
    """Draws of some rows with a given mean; see `model.distributions.classes.draws_with_mean`.

    Args:
        draws: Changed, ``[B, C, S]``.
        goal: Their mean, ``[B, C]``.
        spreads: Filled with the standard deviations over draws, ``[B, C]``.
        entropies: Filled with the mean entropies of the draws, ``[B]``.
        start: First row.
        stop: Row after the last one.
    """
    widest_vectors()
    classes, samples = draws.shape[1], draws.shape[2]
    mean, total = np.empty(classes), np.empty(samples)
    for row in range(start, stop):
        of_row, of_goal = draws[row], goal[row]
        for number in range(classes):
            mean[number] = of_row[number].mean()
        for _ in range(STEPS):
            furthest = 0.0
            for number in range(classes):
                furthest = max(furthest, abs(of_goal[number] / max(mean[number], TINY) - 1.0))
            if furthest < CLOSE:
                break
            total[:] = 0.0
            for number in range(classes):
                ratio = of_goal[number] / max(mean[number], TINY)
                for sample in range(samples):
                    of_row[number, sample] *= ratio
                    total[sample] += of_row[number, sample]
            for number in range(classes):
                sum_of_class = 0.0
                for sample in range(samples):
                    of_row[number, sample] /= total[sample]
                    sum_of_class += of_row[number, sample]
                mean[number] = sum_of_class / samples
        reach = 1.0
        for number in range(classes):
            reach = min(reach, of_goal[number] / max(mean[number], TINY))
        uncertainty = 0.0
        for number in range(classes):
            square = 0.0
            for sample in range(samples):
                apart = reach * (of_row[number, sample] - mean[number])
                square += apart * apart
                probability = max(0.0, of_goal[number] + apart)
                of_row[number, sample] = probability
                uncertainty += _entropy(probability)
            spreads[row, number] = math.sqrt(square / samples)
        entropies[row] = uncertainty / samples
