"""Scores of answers that were kept until the truth came: of a percentile grid, or of the probabilities of classes.

A number's distribution is kept as its percentiles at `LEVELS`. Between them its distribution function is a line in
normal scores for the PIT, and a line in probabilities for the CRPS: within 1 % of a Gaussian's own CRPS. Where
several percentiles are one value, it has a probability of its own, and the PIT is drawn from its span (Brockwell 2007,
"Universal residuals"). A class's PIT is its randomised p-value: the probability of less likely classes, and a share of
its own. Either is uniform if the answers are right.

Scores are added up: `number_sums` and `class_sums` have one line an outcome, and sums of lines tell the quality of any
set of outcomes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from murho.model.arrays import Bools, Doubles, Floats, Places
    from murho.model.predictive.prediction import PredictOptions
    from murho.model.tables.schema import Target

_LOWER = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0)
LEVELS = (*_LOWER, 50.0, *(100.0 - level for level in reversed(_LOWER)))
"""Percentile levels of the grid, G of them."""
COVERAGES = (0.5, 0.8, 0.9, 0.95)
"""Of the central bands whose widths are added up."""
PIT_EDGES = (0.0, 0.005, 0.01, *(round(0.025 * step, 3) for step in range(1, 40)), 0.99, 0.995, 1.0)
"""Of the bins that PITs are counted in: they tell the coverage of every central band that ends at two of them."""
BINS = 15
"""Of the probability of the predicted class, for the expected calibration error."""
NUMBER_SUMS = (
    *("n", "crps", "error", "squared_error"),
    *(f"width_{round(100 * coverage)}" for coverage in COVERAGES),
    *(f"pit_{place}" for place in range(len(PIT_EDGES) - 1)),
)
CLASS_SUMS = (
    *("n", "correct", "log_loss", "brier", "covered", "set_size"),
    *(f"{what}_{place}" for what in ("bin", "bin_correct", "bin_sure") for place in range(BINS)),
)
LEAST = 1e-12
"""Floor of a probability in the log loss."""
FURTHEST = 8.0
"""The largest normal score."""


SHARES: Doubles = np.array(LEVELS) / 100.0
SCORES: Doubles = np.array([NormalDist().inv_cdf(share) for share in SHARES])
"""The levels as probabilities and as normal scores, ``[G]`` each."""


def band_ends(coverage: float) -> tuple[int, int]:
    """Return the bins of PITs that a central band holds, from and up to; the same twice: it ends within one."""
    edges = np.array(PIT_EDGES)
    found = [np.flatnonzero(np.abs(edges - 0.5 * (1.0 + side * coverage)) < 1e-9) for side in (-1.0, 1.0)]
    lower, upper = (int(places[0]) if len(places) else 0 for places in found)
    return lower, upper


@lru_cache(256)  # most requests ask for the same
def with_grid(options: PredictOptions, target: Target) -> PredictOptions:
    """Options whose answer can be recorded: that of a number has its percentiles at `LEVELS` as its grid."""
    return options if target.classes is not None else replace(options, grid=LEVELS)


def number_pits(apart: Floats, values: Doubles, shares: Doubles) -> Doubles:
    """Return the PIT of each outcome, ``[B]``.

    Args:
        apart: Percentiles at `LEVELS` less the mean, ``[B, G]``.
        values: Outcomes less the mean, ``[B]``.
        shares: Uniform numbers, ``[B]``: where in the span of a value with a probability of its own its PIT lies.
    """
    from scipy.special import ndtr  # here: it takes 0.4 s, and the service starts without it

    value = values.astype(np.float32)[:, None]
    below, upto = (apart < value).sum(axis=1), (apart <= value).sum(axis=1)
    rows, most = np.arange(len(values)), len(LEVELS)
    right = below.clip(1, most - 1)
    left_value, right_value = (apart[rows, place].astype(np.float64) for place in (right - 1, right))
    left, step = SCORES[right - 1], SCORES[right] - SCORES[right - 1]
    width = right_value - left_value
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(width > 0.0, (values - left_value) / width, np.where(values > right_value, np.inf, -np.inf))
    scores = (left + step * part).clip(-FURTHEST, FURTHEST)
    between: Doubles = ndtr(scores)
    # Beyond the grid its ends are the nearest that a rounded value may come.
    between = np.where(below == most, np.maximum(between, SHARES[-1]), between)
    # The probability of a value reaches to about halfway between its levels and the next ones.
    middles = np.concatenate([[0.0], 0.5 * (SHARES[1:] + SHARES[:-1]), [1.0]])
    start, end = middles[below], middles[upto]
    return np.where(upto > below, start + shares * (end - start), between)


def crps_of_percentiles(apart: Doubles, values: Doubles, shares: Doubles = SHARES) -> Doubles:
    """Integrate ``(F(x) - [x >= value])^2``, of a distribution function of straight lines, ``[B]``.

    Args:
        apart: Percentiles, rising, ``[B, G]``.
        values: Outcomes, ``[B]``.
        shares: Levels of the percentiles, from 0 to 1, ``[G]`` or ``[B, G]``.
    """
    left, right = apart[:, :-1], apart[:, 1:]
    low, high = shares[..., :-1], shares[..., 1:]
    width, value = right - left, values[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(width > 0.0, ((value - left) / width).clip(0.0, 1.0), (value >= right) * 1.0)
    cut = low + part * (high - low)
    before, after = part * width, (1.0 - part) * width
    inside = before * (low**2 + low * cut + cut**2) + after * (
        (1.0 - cut) ** 2 + (1.0 - cut) * (1.0 - high) + (1.0 - high) ** 2
    )
    beyond = np.maximum(values - apart[:, -1], 0.0) + np.maximum(apart[:, 0] - values, 0.0)
    total: Doubles = inside.sum(axis=1) / 3.0 + beyond
    return total


def number_sums(apart: Floats, values: Doubles, pits: Doubles) -> Doubles:
    """One line an outcome, ``[B, len(NUMBER_SUMS)]``; takes arguments as `number_pits` does, and its result.

    ``error`` is the mean less the outcome.
    """
    grid = apart.astype(np.float64)
    sums = np.zeros((len(values), len(NUMBER_SUMS)))
    sums[:, 0], sums[:, 1], sums[:, 2], sums[:, 3] = 1.0, crps_of_percentiles(grid, values), -values, values**2
    for place, coverage in enumerate(COVERAGES, start=4):
        ends = (LEVELS.index(round(50.0 * (1.0 + side * coverage), 1)) for side in (-1.0, 1.0))
        lower, upper = ends
        sums[:, place] = grid[:, upper] - grid[:, lower]
    bins = np.searchsorted(PIT_EDGES, pits, side="right").clip(1, len(PIT_EDGES) - 1) - 1
    sums[np.arange(len(values)), 4 + len(COVERAGES) + bins] = 1.0
    return sums


def class_pits(probabilities: Floats, indices: Places, shares: Doubles) -> Doubles:
    """Return the randomised p-value of each outcome, ``[B]``.

    Args:
        probabilities: ``[B, C]``.
        indices: Of the true classes, ``[B]``.
        shares: Uniform numbers, ``[B]``.
    """
    wide = probabilities.astype(np.float64)
    own = wide[np.arange(len(wide)), indices][:, None]
    below, same = (wide * (wide < own)).sum(axis=1), (wide * (wide == own)).sum(axis=1)
    pits: Doubles = (below + shares * same).clip(0.0, 1.0)
    return pits


def class_sums(probabilities: Floats, sets: Bools, indices: Places) -> Doubles:
    """One line an outcome, ``[B, len(CLASS_SUMS)]``.

    Args:
        probabilities: ``[B, C]``.
        sets: Whether each class is in the prediction set, ``[B, C]``.
        indices: Of the true classes, ``[B]``.
    """
    rows, wide = np.arange(len(indices)), probabilities.astype(np.float64)
    sums = np.zeros((len(indices), len(CLASS_SUMS)))
    correct = wide.argmax(axis=1) == indices
    truth = np.zeros_like(wide)
    truth[rows, indices] = 1.0
    sure = wide.max(axis=1)
    sums[:, 0], sums[:, 1] = 1.0, correct
    sums[:, 2] = -np.log(np.maximum(wide[rows, indices], LEAST))
    sums[:, 3] = ((wide - truth) ** 2).sum(axis=1)
    sums[:, 4], sums[:, 5] = sets[rows, indices], sets.sum(axis=1)
    place = 6 + np.minimum((sure * BINS).astype(np.intp), BINS - 1)
    sums[rows, place], sums[rows, place + BINS], sums[rows, place + 2 * BINS] = 1.0, correct, sure
    return sums
