"""Fit of a `model.encoding.feature_distribution.FeatureDistribution`, and the reach of ordinary distances.

A row counts as unlike the training rows if its distance is beyond the reach. Of fresh rows from where the training
rows come from, 1 % at most shall be. For each of five folds the distribution is fitted to the other four, and the
distances of the rows left out are measured. The reach is their conformal quantile (Vovk, Gammerman and Shafer 2005):
of n distances, the one of rank ``0.99 (n + 1)``, rounded up. A fresh distance exceeds it with probability 1 % at most,
as far as four fifths of the rows do for all of them.

Where there are landmarks, the larger one of two distances counts (`model.encoding.feature_distribution`). Then each has
a reach of its own, of rank ``0.995 (n + 1)``, and the distance to the landmarks is scaled so that both are one number.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from murho.model.encoding.feature_distribution import (
    MOST_COLUMNS,
    FeatureDistribution,
    Landmarks,
    best_shrinkage,
    marginals,
    sample_correlation,
    shrunk,
)
from murho.model.encoding.unlike import distance_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from murho.model.encoding.feature_distribution import LevelShares
    from murho.model.encoding.quantile_scores import QuantileScores
    from murho.model.tables.schema import Columns, Schema

__all__ = [
    "ALARM_RATE",
    "FEWEST_ROWS",
    "fit_feature_distribution",
    "reach_of",
]

ALARM_RATE = 0.01
"""Largest share of fresh rows, from where the training rows come from, that are called unlike them."""
FOLDS = 5
FEWEST_ROWS = 5
MOST_ROWS = 20_000
"""Largest number of training rows for correlation and distances; the scores of single features use all rows."""
SEED = 0
STRETCH = 1.5
"""The reach is that of the furthest training row, but at most this multiple of the conformal quantile: a few training
rows with an error in a cell shall not hide all that is less unlike."""
TAIL_SHARE = 0.2
"""Share of the largest distances, which tell how the tail goes on where rows are too few for such a rank."""


def fit_feature_distribution(
    schema: Schema,
    columns: Columns,
    folds: npt.NDArray[np.int64] | None = None,
    *,
    units: npt.NDArray[np.int64] | None = None,
    forward: bool = False,
) -> FeatureDistribution | None:
    """Fit the distribution of the features to the training rows.

    Args:
        schema: The features.
        columns: Canonical columns of the training rows, ``[N]`` each.
        folds: Fold of each row, from 0, ``[N]``: fresh rows are to the training rows as a fold is to the others. Rows
            of a fold below 0 are always fitted to. By default rows have random folds.
        units: Unit of each row, ``[N]``, of which one row tells how far fresh rows are. By default each row does.
        forward: Whether only the rows of lower folds are fitted to, not all others: folds are blocks in time.

    Returns:
        The distribution; None for fewer than 5 rows.
    """
    rows = len(next(iter(columns.values())))
    if rows < FEWEST_ROWS:
        return None
    order = np.random.Generator(np.random.PCG64(SEED)).permutation(rows)[:MOST_ROWS]
    sample = {name: column[order] for name, column in columns.items()}
    at_random = _parts(np.arange(len(order)) % FOLDS, forward=False)
    places = (None if folds is None else _parts(folds[order], forward=forward)) or at_random
    parts = []
    for others, held_out in places:
        fitted_to, asked = ({name: column[part] for name, column in sample.items()} for part in (others, held_out))
        part = _unshrunk(*marginals(schema, fitted_to), fitted_to)
        parts.append((part, _landmarks(part, fitted_to), asked))
    measured = np.concatenate([np.flatnonzero(held_out) for _, held_out in places])
    shrinkage = best_shrinkage((part.correlation, part.clipped_scores(held_out)) for part, _, held_out in parts)
    distances = np.concatenate([distance_of(_with_shrinkage(part, shrinkage), held_out) for part, _, held_out in parts])
    fitted = _with_shrinkage(_unshrunk(*marginals(schema, columns), sample), shrinkage)
    counted = slice(None) if units is None else np.unique(units[order][measured], return_index=True)[1]
    ordinary = reach_of(distances[counted])
    landmarks = _landmarks(fitted, sample)
    apart = [np.zeros(0) if near is None else near.distances(part.values(held_out)) for part, near, held_out in parts]
    if landmarks is not None and all(len(found) for found in apart):
        reaches = [reach_of(each[counted], ALARM_RATE / 2.0) for each in (distances, np.concatenate(apart))]
        if min(reaches) > 0.0:
            ordinary = reaches[0]
            fitted = replace(fitted, landmarks=replace(landmarks, unit=ordinary / reaches[1]))
    furthest = float(distance_of(fitted, sample).max(initial=0.0))
    return replace(fitted, reach=max(ordinary, min(furthest * (1.0 + 1e-9), STRETCH * ordinary)))


def _parts(folds: npt.NDArray[np.int64], *, forward: bool) -> list[tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]]:
    """Return for each fold which rows are fitted to and which are measured, ``[n]`` each; none of both is empty."""
    parts = []
    for number in range(int(folds.max()) + 1):
        held_out = folds == number
        others = folds < number if forward else ~held_out
        if held_out.any() and others.any():
            parts.append((others, held_out))
    return parts


def reach_of(distances: npt.NDArray[np.float64], rate: float = ALARM_RATE) -> float:
    """Return the distance that at most so many of fresh rows exceed, from the distances of held-out rows ``[n]``.

    Where the rank is beyond n, the tail goes on like that of an exponential distribution. With k excesses over a
    threshold, of mean m, a fresh excess is beyond t with probability ``(1 + t / (k m))^-k``: the predictive
    distribution of an exponential of unknown scale.
    """
    ordered = np.sort(distances)
    rank = math.ceil((1.0 - rate) * (len(ordered) + 1))
    if rank <= len(ordered):
        return float(ordered[rank - 1])
    count = max(2, round(TAIL_SHARE * len(ordered)))
    threshold = ordered[-count - 1] if count < len(ordered) else 0.0
    mean = float((ordered[-count:] - threshold).mean())
    share = rate * len(ordered) / count
    return float(max(ordered[-1], threshold + count * mean * (share ** (-1.0 / count) - 1.0)))


def _landmarks(distribution: FeatureDistribution, columns: Columns) -> Landmarks | None:
    stds = np.array([scores.std for scores in distribution.numbers.values()])
    return Landmarks.fit(distribution.values(columns), stds)


def _unshrunk(
    numbers: Mapping[str, QuantileScores], levels: Mapping[str, LevelShares], columns: Columns
) -> FeatureDistribution:
    """Return a distribution with the sample correlation, which may be singular."""
    empty = FeatureDistribution(numbers, levels, np.zeros((0, 0)), math.inf)
    if len(numbers) > MOST_COLUMNS:
        return replace(empty, correlation=np.eye(len(empty.owners)))
    return replace(empty, correlation=sample_correlation(empty.clipped_scores(columns)))


def _with_shrinkage(distribution: FeatureDistribution, shrinkage: float) -> FeatureDistribution:
    return replace(distribution, correlation=shrunk(distribution.correlation, shrinkage))
