"""Imputation: what missing cells may have been, given the other cells of the row.

A row gets `IMPUTATIONS` completed copies. The values are those of the copula of the training rows
(`model.encoding.feature_distribution`), conditional on the row's known cells: first the missing levels, one feature
after the other, then the missing numbers together. They are always values of the training range.

The uniform numbers behind them form a Latin hypercube (McKay, Beckman and Conover 1979): each feature gets the middles
of R equal parts of the unit interval, in an order of its own. The order is fixed, so the copies depend on the row
alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.encoding.feature_distribution import alike
from murho.model.encoding.feature_scores import normal_quantile
from murho.model.tables.columns import is_missing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from murho.model.encoding.feature_distribution import FeatureDistribution
    from murho.model.encoding.feature_scores import LevelShares
    from murho.model.tables.schema import Columns, Schema

__all__ = [
    "IMPUTATIONS",
    "imputed_columns",
]

IMPUTATIONS = 31
"""R, the completed copies of a row. Draw k uses copy ``k mod R``. R is prime, so that every member gets every copy."""
DOUBT = 0.02
"""Weight of the shares of the training rows in the probabilities of levels."""


def imputed_columns(distribution: FeatureDistribution, schema: Schema, columns: Columns) -> dict[str, npt.NDArray[Any]]:
    """Return R completed copies of rows.

    Args:
        distribution: The distribution of the training rows.
        schema: The features.
        columns: Canonical columns of the features, ``[B]`` each.

    Returns:
        Columns ``[R * B]``: copy r of row b is entry ``r B + b``. Missing cells of features that had some in training
        stay missing.
    """
    wanted = [feature.name for feature in schema.features if feature.imputed]
    places = {feature.name: place for place, feature in enumerate(schema.features)}
    copies = {name: np.tile(column, (IMPUTATIONS, 1)) for name, column in columns.items()}
    gone = np.stack([is_missing(columns[name]) for name in wanted], axis=1)
    scores = distribution.scores(columns)
    for pattern, rows in alike(np.concatenate([gone, np.isnan(scores)], axis=1)):
        names = [name for name, missing in zip(wanted, pattern, strict=False) if missing]
        for name, values in _filled(distribution, names, scores[rows], places).items():
            copies[name][:, rows] = values
    return {name: copy.reshape(-1) for name, copy in copies.items()}


def _filled(
    distribution: FeatureDistribution,
    names: Sequence[str],
    scores: npt.NDArray[np.float64],
    places: Mapping[str, int],
) -> dict[str, npt.NDArray[Any]]:
    """Return values ``[R, B]`` for the missing cells of rows that lack the same features.

    Args:
        distribution: The distribution of the training rows.
        names: The features to fill.
        scores: Scores of the B rows, ``[B, Q]``; NaN where not known.
        places: Place of each feature in the schema.
    """
    copies = np.tile(scores, (IMPUTATIONS, 1))
    filled: dict[str, npt.NDArray[Any]] = {}
    owners = np.array(distribution.owners, dtype=object)
    indicated = dict(distribution.indicated)
    for name in (name for name in names if name in distribution.levels):
        shares, levels, own = distribution.levels[name], indicated.get(name, np.empty(0, np.intp)), owners == name
        sums = _probabilities(distribution, copies, shares, levels, own).cumsum(axis=1)
        uniforms = np.repeat(_uniforms(places[name]), len(scores))
        codes = np.minimum((uniforms[:, None] * sums[:, -1:] > sums).sum(axis=1), len(shares.levels) - 1)
        copies[:, own] = shares.indicators(codes, levels)
        filled[name] = shares.column(codes).reshape(IMPUTATIONS, -1)
    own = np.isin(owners, [name for name in names if name in distribution.numbers])
    known = ~np.isnan(copies[0]) & ~own
    weights, covariance = distribution.conditional(known, own)
    uniform = np.array([_uniforms(places[name]) for name in owners[own]]).reshape(-1, IMPUTATIONS)
    deviations = normal_quantile(uniform.T) @ np.linalg.cholesky(covariance).T
    drawn = copies[:, known] @ weights + np.repeat(deviations, len(scores), axis=0)
    for name, column in zip(owners[own], drawn.T, strict=True):
        filled[name] = distribution.numbers[name].at(column).reshape(IMPUTATIONS, -1)
    return filled


def _probabilities(
    distribution: FeatureDistribution,
    scores: npt.NDArray[np.float64],
    shares: LevelShares,
    levels: npt.NDArray[np.intp],
    own: npt.NDArray[np.bool_],
) -> npt.NDArray[np.float64]:
    """Return probabilities of the levels of a feature, given the known columns of rows, ``[n, L]``.

    Given the level, the known columns are Gaussian with one covariance, so Bayes' rule gives the probabilities: linear
    discriminant analysis. Levels without an indicator differ by their share alone.

    Args:
        distribution: The distribution of the training rows.
        scores: Scores of the rows, ``[n, Q]``; NaN where not known.
        shares: The levels of the feature.
        levels: Those with an indicator.
        own: The feature's columns, ``[Q]``.
    """
    known = ~np.isnan(scores[0]) & ~own
    if not own.any() or not known.any():
        return np.tile(shares.shares, (len(scores), 1))
    weights, covariance = distribution.conditional(own, known)
    factor = np.linalg.cholesky(np.linalg.inv(covariance))
    # One more centre than indicators: that of all levels without one, as the most frequent is.
    codes = np.append(levels, shares.counts.argmax())
    centres = shares.indicators(codes, levels) @ weights @ factor
    squares = np.square((scores[:, known] @ factor)[:, None] - centres).sum(axis=2)
    evidence = np.exp(-0.5 * (squares - squares.min(axis=1, keepdims=True)))
    likely = shares.shares * evidence[:, -1:]
    likely[:, levels] = shares.shares[levels] * evidence[:, :-1]
    likely /= likely.sum(axis=1, keepdims=True)
    return np.asarray((1.0 - DOUBT) * likely + DOUBT * shares.shares)


@lru_cache(maxsize=4096)
def _uniforms(place: int) -> npt.NDArray[np.float64]:
    """Return the R uniform numbers of the feature at a place of the schema: stratified, in an order of its own."""
    keys = np.random.Philox(key=np.array([IMPUTATIONS, place], dtype=np.uint64)).random_raw(IMPUTATIONS)
    return (np.argsort(keys) + 0.5) / IMPUTATIONS
