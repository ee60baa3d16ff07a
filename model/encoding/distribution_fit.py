"""The fit of the distribution of the features: a shrunk correlation, and a distance limit from held-out rows.

A row counts as unlike the training rows if its distance exceeds the limit. Of fresh rows from where the training
rows come from, 1 % at most shall be. For each of five folds the distribution is fitted to the other four, and the
distances of the rows left out are measured. The limit is their conformal quantile (Vovk, Gammerman and Shafer 2005):
of n distances, the one of rank ``0.99 (n + 1)``, rounded up. A fresh distance exceeds it with probability 1 % at most,
as far as four fifths of the rows do for all of them.

The correlation is shrunk as far as held-out rows say. A sample correlation matrix of few rows has eigenvalues that are
too small: directions in which the training rows happen to vary little. A fresh row would then seem far from them. The
matrix is shrunk towards the identity (Ledoit and Wolf 2004, "A well-conditioned estimator for large-dimensional
covariance matrices"); how far, the likelihood of held-out rows decides. So a direction of small variance that held-out
rows share is kept.

Where there are landmarks, each of the two distances has a limit of its own, of rank ``0.995 (n + 1)``, and the distance
to the landmarks is scaled so that both are one number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from murho.model.arrays import Bools, Doubles, Ints
from murho.model.encoding.feature_distribution import (
    MOST_COLUMNS,
    FeatureDistribution,
    LevelShares,
    QuantileScores,
    levels_of,
)
from murho.model.encoding.landmarks import Landmarks
from murho.model.encoding.outliers import Distances
from murho.model.tables.schema import Columns, Schema, count_rows

ALARM_RATE = 0.01
"""Largest share of fresh rows, from where the training rows come from, that are called unlike them."""
FOLDS = 5
FEWEST_ROWS = 5
MOST_ROWS = 20_000
"""Largest number of training rows for correlation and distances; the scores of single features use all rows."""
SEED = 0
STRETCH = 1.5
"""The limit is that of the furthest training row, but at most this multiple of the conformal quantile: a few training
rows with an error in a cell shall not hide all that is less unlike."""
SHRINKAGES = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.06, 0.1, 0.2, 0.35, 0.6, 1.0)
"""Weights of the identity to choose from."""
TAIL_SHARE = 0.2
"""Share of the largest distances, which tell how the tail goes on where rows are too few for such a rank."""


def fit_feature_distribution(
    schema: Schema,
    columns: Columns,
    folds: Ints | None = None,
    *,
    units: Ints | None = None,
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
    rows = count_rows(columns)
    if rows < FEWEST_ROWS:
        return None
    order = np.random.Generator(np.random.PCG64(SEED)).permutation(rows)[:MOST_ROWS]
    sample = {name: column[order] for name, column in columns.items()}
    at_random = _parts(np.arange(len(order)) % FOLDS, forward=False)
    places = (None if folds is None else _parts(folds[order], forward=forward)) or at_random
    parts = []
    for part in places:
        fitted_to, held_out = ({name: column[mask] for name, column in sample.items()} for mask in part)
        parts.append((_unshrunk(schema, fitted_to, fitted_to), held_out))
    shrinkage = best_shrinkage((part.joint, part.scores(held_out)) for part, held_out in parts)
    fitted = _shrunk(_unshrunk(schema, columns, sample), shrinkage)
    # Both distances of the held-out rows, ``[2, n]``.
    found = np.concatenate([Distances.of(_shrunk(part, shrinkage), held_out).whole for part, held_out in parts], axis=1)
    if units is not None:
        held_out_rows = np.concatenate([np.flatnonzero(held_out) for _, held_out in places])
        found = found[:, np.unique(units[order][held_out_rows], return_index=True)[1]]
    landmarks, ordinary = None, reach_of(found[0])
    if fitted.landmarks is not None and all(part.landmarks is not None for part, _ in parts):
        reaches = [reach_of(distances, ALARM_RATE / 2.0) for distances in found]
        if min(reaches) > 0.0:
            landmarks, ordinary = replace(fitted.landmarks, unit=reaches[0] / reaches[1]), reaches[0]
    fitted = replace(fitted, landmarks=landmarks)
    furthest = float(Distances.of(fitted, sample).whole.max())
    return replace(fitted, reach=max(ordinary, min(furthest * (1.0 + 1e-9), STRETCH * ordinary)))


def _parts(folds: Ints, *, forward: bool) -> list[tuple[Bools, Bools]]:
    """Return for each fold which rows are fitted to and which are measured, ``[n]`` each; none of both is empty."""
    parts = []
    for number in range(int(folds.max()) + 1):
        held_out = folds == number
        others = folds < number if forward else ~held_out
        if held_out.any() and others.any():
            parts.append((others, held_out))
    return parts


def reach_of(distances: Doubles, rate: float = ALARM_RATE) -> float:
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


def _unshrunk(schema: Schema, columns: Columns, sample: Columns) -> FeatureDistribution:
    """Return the distribution of single features over all rows, with correlation and landmarks of a sample.

    The correlation may be singular.
    """
    numbers, levels = dict[str, QuantileScores](), dict[str, LevelShares]()
    for feature in schema.features:
        column = columns[feature.name]
        if levels_of(feature) is not None:
            if (shares := LevelShares.fit(feature, column)) is not None:
                levels[feature.name] = shares
        elif (scores := QuantileScores.fit(column)) is not None:
            numbers[feature.name] = scores
    fitted = FeatureDistribution(numbers, levels, None, math.inf)
    stds = np.array([scores.std for scores in numbers.values()])
    landmarks = Landmarks.fit(fitted.values(sample), stds)
    correlation = None if len(numbers) > MOST_COLUMNS else sample_correlation(fitted.scores(sample))
    return replace(fitted, correlation=correlation, landmarks=landmarks)


def sample_correlation(scores: Doubles) -> Doubles:
    """Return the mean products of standardised scores ``[N, Q]``, ``[Q, Q]``, with 1 on the diagonal.

    NaN stands for a missing cell: each entry is a mean over the rows that have both cells.
    """
    present = (~np.isnan(scores)).astype(np.float64)
    filled = np.nan_to_num(scores)
    correlation = _scale(filled.T @ filled / np.maximum(present.T @ present, 1.0))
    if present.all():
        return correlation
    # Means over different rows may not fit together: negative variances.
    variances, vectors = np.linalg.eigh(correlation)
    return _scale((vectors * np.maximum(variances, 0.0)) @ vectors.T)


def _scale(products: Doubles) -> Doubles:
    """Return mean products ``[Q, Q]`` scaled to 1 on the diagonal."""
    variances = np.diagonal(products)
    scale = 1.0 / np.sqrt(np.where(variances > 0.0, variances, 1.0))
    scaled = products * scale[:, None] * scale
    np.fill_diagonal(scaled, 1.0)
    return scaled


def best_shrinkage(folds: Iterable[tuple[Doubles, Doubles]]) -> float:
    """Return the one of `SHRINKAGES` with the largest Gaussian likelihood of held-out rows.

    Args:
        folds: Sample correlation of the other rows, ``[Q, Q]``, and scores of the held-out rows, ``[n, Q]``.
    """
    losses = np.zeros(len(SHRINKAGES))
    for correlation, held_out in folds:
        variances, vectors = np.linalg.eigh(correlation)
        # A score of 4 or more is rare among Gaussian rows: a few of them shall not decide.
        squares = np.square(np.clip(np.nan_to_num(held_out), -4.0, 4.0) @ vectors).sum(axis=0)
        weights = np.array(SHRINKAGES)[:, None]
        shrunk = (1.0 - weights) * np.maximum(variances, 0.0) + weights
        losses += (squares / shrunk + len(held_out) * np.log(shrunk)).sum(axis=1)
    return SHRINKAGES[int(losses.argmin())]


def _shrunk(distribution: FeatureDistribution, shrinkage: float) -> FeatureDistribution:
    """Return the distribution with the mean of its correlation and the identity, which has this weight."""
    joint = distribution.correlation
    if joint is None:
        return distribution
    return replace(distribution, correlation=(1.0 - shrinkage) * joint + shrinkage * np.eye(len(joint)))
