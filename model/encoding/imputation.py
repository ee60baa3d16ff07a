"""Imputation: what missing cells may have been, given the other cells of the row.

A row gets `IMPUTATIONS` completed copies. The values are those of the copula of the training rows
(`model.encoding.feature_distribution`), conditional on the row's known cells: first the missing levels, one feature
after the other, then the missing numbers together. They are always values of the training range.

The uniform numbers behind them form a Latin hypercube (McKay, Beckman and Conover 1979): each feature gets the middles
of R equal parts of the unit interval, in an order of its own. The order is fixed, so the copies depend on the row
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import torch

from murho.model.arrays import Array, Bools, Doubles, Places
from murho.model.encoding.feature_distribution import FeatureDistribution, LevelShares, normal_quantile
from murho.model.tables.schema import Columns, Schema, is_missing

IMPUTATIONS = 31
"""R, the completed copies of a row. Draw k uses copy ``k mod R``. R is prime, so that every member gets every copy."""
PIECE_VALUES = 2**21
"""Of the matrices of rows that are filled at once: 16 MiB each."""
DOUBT = 0.02
"""Weight of the shares of the training rows in the probabilities of levels."""


def impute_columns(
    distribution: FeatureDistribution, schema: Schema, columns: Columns, wanted: Sequence[str] | None = None
) -> dict[str, Array]:
    """Return R completed copies of rows.

    Args:
        distribution: The distribution of the training rows.
        schema: The features.
        columns: Canonical columns of the features, ``[B]`` each.
        wanted: The features to fill; None: those that had no missing cell in training.

    Returns:
        Columns ``[R * B]``: copy r of row b is entry ``r B + b``. Missing cells of other features stay missing, as do
        those of a feature of which no training row had a value.
    """
    if wanted is None:
        wanted = [feature.name for feature in schema.features if feature.imputed]
    places = {feature.name: place for place, feature in enumerate(schema.features)}
    copies = {name: np.tile(column, (IMPUTATIONS, 1)) for name, column in columns.items()}
    scores, gone = distribution.scores(columns), {name: is_missing(columns[name]) for name in wanted}
    at_once = max(1, PIECE_VALUES // max(1, len(distribution.owners)) ** 2)
    # Rows that lack a level come apart: all copies of another row have the same known scores.
    lacking = np.any([np.zeros(len(scores)), *(gone[name] for name in distribution.levels if name in gone)], axis=0)
    for every in (np.flatnonzero(lacking), np.flatnonzero(~lacking)):
        for start in range(0, len(every), at_once):
            rows = every[start : start + at_once]
            missing = {name: of[rows] for name, of in gone.items() if of[rows].any()}
            for name, values in _fill(distribution, missing, scores[rows], places).items():
                copies[name][:, rows[missing[name]]] = values.T
    return {name: copy.reshape(-1) for name, copy in copies.items()}


def _fill(
    distribution: FeatureDistribution,
    missing: Mapping[str, Bools],
    scores: Doubles,
    places: Mapping[str, int],
) -> dict[str, Array]:
    """Return values for the missing cells of B rows, ``[n, R]`` for the n rows that lack a feature.

    What depends only on which cells a row lacks is computed once for all rows that lack the same ones.

    Args:
        distribution: The distribution of the training rows.
        missing: Feature to fill → whether each row lacks it, ``[B]``.
        scores: Scores of the rows, ``[B, Q]``; NaN where not known.
        places: Place of each feature in the schema.
    """
    repeats = 1 if distribution.levels.keys().isdisjoint(missing) else IMPUTATIONS
    copies, known = np.repeat(np.nan_to_num(scores)[:, None], repeats, axis=1), ~np.isnan(scores)
    filled: dict[str, Array] = {}
    owners, indicated = np.array(distribution.owners, dtype=object), dict(distribution.indicated)
    for name, of_rows in missing.items():
        if name in distribution.levels:
            shares, levels, own = distribution.levels[name], indicated.get(name, np.empty(0, np.intp)), owners == name
            known[:, own] &= ~of_rows[:, None]
            rows = np.flatnonzero(of_rows)
            sums = _probabilities(distribution, copies[rows], known[rows], shares, levels, own).cumsum(axis=2)
            uniforms = _uniforms(places[name])[:, None]
            codes = np.minimum((uniforms * sums[..., -1:] > sums).sum(axis=2), len(shares.levels) - 1)
            copies[np.ix_(rows, np.arange(IMPUTATIONS), own)] = shares.indicators(codes, levels)
            known[np.ix_(rows, own)] = True
            filled[name] = shares.column(codes)
    numbers = [name for name in missing if name in distribution.numbers]
    if not numbers:
        return filled
    for name in numbers:
        known[:, owners == name] &= ~missing[name][:, None]
    # Of a Gaussian with the inverse covariance P, what is not known, u, has the mean -P_uu^-1 P_uk z_k, and with
    # P_uu = L L' and independent normals e the deviations L'^-1 e.
    patterns, of_row = np.unique(known, axis=0, return_inverse=True)
    of_row = of_row.reshape(-1)
    factors = torch.linalg.cholesky(torch.from_numpy(_among(~patterns, distribution.precision)))
    normal = normal_quantile(np.stack([_uniforms(len(places) + column) for column in range(len(owners))]))
    deviations = torch.linalg.solve_triangular(factors.mT, torch.from_numpy(normal), upper=True)
    pulls = torch.from_numpy((copies * known[:, None]) @ distribution.precision)
    drawn = (deviations[of_row] - torch.cholesky_solve(pulls.mT, factors[of_row])).numpy()
    for name in numbers:
        rows, (column,) = np.flatnonzero(missing[name]), np.flatnonzero(owners == name)
        filled[name] = distribution.numbers[name].at(drawn[rows, column])
    return filled


def _among(masks: Bools, matrix: Doubles) -> Doubles:
    """Return a matrix ``[Q, Q]``, or one for each mask, among the columns of masks ``[P, Q]``; else the identity."""
    return np.where(masks[:, :, None] & masks[:, None], matrix, np.eye(masks.shape[1]))


def _probabilities(
    distribution: FeatureDistribution,
    scores: Doubles,
    known: Bools,
    shares: LevelShares,
    levels: Places,
    own: Bools,
) -> Doubles:
    """Return probabilities of the levels of a feature, given the known columns of rows, ``[n, R, L]``.

    Given the level, the known columns are Gaussian with one covariance, so Bayes' rule gives the probabilities: linear
    discriminant analysis. Levels without an indicator differ by their share alone.

    Args:
        distribution: The distribution of the training rows.
        scores: Scores of the copies of rows, ``[n, R, Q]``.
        known: Whether they are known, ``[n, Q]``; not those of the feature.
        shares: The levels of the feature.
        levels: Those with an indicator.
        own: The feature's columns, ``[Q]``.
    """
    if not own.any():
        return np.broadcast_to(shares.shares, (*scores.shape[:2], len(shares.shares)))
    weights, covariance = distribution.conditional(own, ~own)
    every = np.eye(len(own))
    every[np.ix_(~own, ~own)] = covariance
    patterns, of_row = np.unique(known, axis=0, return_inverse=True)
    of_row = of_row.reshape(-1)
    factors = np.linalg.cholesky(np.linalg.inv(_among(patterns, every)))
    # One more centre than indicators: that of all levels without one, as the most frequent is.
    codes = np.append(levels, shares.counts.argmax())
    centres = np.zeros((len(patterns), len(codes), len(own)))
    centres[:, :, ~own] = shares.indicators(codes, levels) @ weights
    centres = (centres * patterns[:, None]) @ factors
    seen = (scores * known[:, None]) @ factors[of_row]
    # The squared distances from the centres, but for what is the same for all of them.
    squares = np.square(centres).sum(axis=2)[of_row][:, None] - 2.0 * seen @ centres[of_row].transpose(0, 2, 1)
    evidence = np.exp(-0.5 * (squares - squares.min(axis=2, keepdims=True)))
    likely = shares.shares * evidence[..., -1:]
    likely[..., levels] = shares.shares[levels] * evidence[..., :-1]
    likely /= likely.sum(axis=2, keepdims=True)
    return np.asarray((1.0 - DOUBT) * likely + DOUBT * shares.shares)


@lru_cache(maxsize=4096)
def _uniforms(place: int) -> Doubles:
    """Return R uniform numbers: stratified, in an order of their own for each place.

    The keys of draws (`model.predictive.draws`) have 0 in the second word, so that no seed has these streams.
    """
    keys = np.random.Philox(key=np.array([place, IMPUTATIONS], dtype=np.uint64)).random_raw(IMPUTATIONS)
    return (np.argsort(keys) + 0.5) / IMPUTATIONS
