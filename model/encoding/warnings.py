"""Warnings in an answer, for people, about inputs that are unlike the training rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.encoding.unlike import RowDistances, isolated_numbers, odd_combinations
from murho.model.tables.columns import is_missing
from murho.model.tables.schema import FeatureKind, UnfamiliarValue, outside_rows, with_unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.encoding.encoder import Encoder
    from murho.model.encoding.feature_distribution import FeatureDistribution
    from murho.model.tables.schema import Columns, Feature, Schema

__all__ = [
    "distance_warnings",
    "input_warnings",
    "listed_features",
    "listed_rows",
]


def distance_warnings(
    distribution: FeatureDistribution,
    schema: Schema,
    columns: Columns,
    limit: int | None = None,
    *,
    among: NDArray[np.bool_] | None = None,
) -> list[UnfamiliarValue]:
    """List unseen categories, imputed cells, and the features that make rows unlike the training rows.

    Of an unlike row every number beyond its training range is listed. If the row would be unlike without these too, the
    features are listed whose combination with the others makes it so. Where each combination is ordinary, but no
    training row is near, the numbers are listed that differ most from the nearest ones.

    Args:
        distribution: The distribution of the training rows.
        schema: The features.
        columns: The features' canonical columns, each ``[B]``.
        limit: Largest number of entries: the first ones, by row; None for all.
        among: The rows that are unlike the training rows or have an unseen category, ``[B]``, if known.

    Returns:
        One entry per cell, in no order.
    """
    warnings = [
        *_of_kind(schema, columns, np.arange(len(next(iter(columns.values())))), limit, categories=True),
        *_missing_cells(schema, columns, limit),
    ]
    rows = np.arange(len(next(iter(columns.values())))) if among is None else np.flatnonzero(among)
    if not rows.size or not distribution.numbers:
        return warnings
    measured = RowDistances.of(distribution, {name: column[rows] for name, column in columns.items()})
    far = measured.distances > distribution.reach
    warnings += _of_kind(schema, columns, rows[far], limit, categories=False)
    # A row with imputed cells is unlike if its copies are, though its known cells may be within reach.
    named = {warning.row for warning in warnings}
    odd = far & (measured.within > distribution.reach)
    odd |= np.isin(rows, list(named), invert=True) & (far | (among is not None))
    outside = {(warning.row, warning.feature) for warning in warnings}
    isolated = odd & (measured.combined_within <= distribution.reach) & (measured.apart_within > distribution.reach)
    places = np.flatnonzero(isolated)[:limit]
    features = {feature.name: feature for feature in schema.features}
    for row, numbers in zip(rows[places].tolist(), isolated_numbers(distribution, columns, rows[places]), strict=True):
        for feature, nearest in numbers:
            if (row, feature) not in outside:
                warnings.append(UnfamiliarValue(row, feature, _far_message(features[feature], nearest)))
    places = np.flatnonzero(odd & ~isolated)[:limit]
    for row, combinations in zip(
        rows[places].tolist(), odd_combinations(distribution, measured.scores[places]), strict=True
    ):
        for feature, partner in combinations:
            if (row, feature) not in outside:
                ordinary = (row, partner) not in outside
                warnings.append(UnfamiliarValue(row, feature, _message(partner, ordinary=ordinary)))
    return warnings


def _of_kind(
    schema: Schema, columns: Columns, rows: NDArray[np.intp], limit: int | None, *, categories: bool
) -> list[UnfamiliarValue]:
    """Return values beyond ranges, or unseen categories, of the rows with these numbers."""
    features = [feature for feature in schema.features if (feature.kind is FeatureKind.CATEGORICAL) == categories]
    if not features or not rows.size:
        return []
    chosen = type(schema)(tuple(features), schema.target, {})
    found = chosen.outside({feature.name: columns[feature.name][rows] for feature in features}, limit)
    return [UnfamiliarValue(int(rows[item.row]), item.feature, item.message) for item in found]


def _missing_cells(schema: Schema, columns: Columns, limit: int | None) -> list[UnfamiliarValue]:
    message = "the cell is missing; no training row lacked it: the answer averages over what it may have been"
    return [
        UnfamiliarValue(int(row), feature.name, message)
        for feature in schema.features
        if feature.imputed
        for row in np.flatnonzero(is_missing(columns[feature.name]))[:limit]
    ]


def _message(partner: str | None, *, ordinary: bool) -> str:
    if partner is None:
        return "the value is unlike the training rows"
    alone = "; each value alone is ordinary" if ordinary else ""
    return f"its combination with {partner!r} is unlike the training rows{alone}"


def _far_message(feature: Feature, nearest: float) -> str:
    about = round(nearest) if feature.kind is FeatureKind.DATE else float(f"{nearest:.4g}")
    return f"the row is far from every training row; the nearest ones have about {with_unit(feature, about)}"


def input_warnings(
    encoder: Encoder,
    columns: Columns,
    limit: int | None = None,
    *,
    among: NDArray[np.bool_] | None = None,
) -> list[UnfamiliarValue]:
    """List unseen categories, missing cells that are imputed, and what makes rows unlike the training rows.

    The distance of a row decides whether it is unlike (`model.encoding.warnings`). Without a distribution of
    the features, values outside the training range are listed.

    Args:
        encoder: The encoder fitted to the training rows.
        columns: The features' canonical columns, each ``[B]``.
        limit: Largest number of entries: the first ones; None for all.
        among: Whether each row lies outside the training range, ``[B]``, if known
            (`model.predictive.prediction.Prediction.outside`): only such rows are searched for what makes them so.

    Returns:
        One entry per cell, sorted by row, then by feature in schema order.
    """
    if limit == 0:
        return []
    order = {feature.name: position for position, feature in enumerate(encoder.schema.features)}
    if encoder.distribution is None:
        warnings = encoder.schema.outside(columns, limit)
    else:
        warnings = distance_warnings(encoder.distribution, encoder.schema, columns, limit, among=among)
    return sorted(warnings, key=lambda warning: (warning.row, order[warning.feature]))[:limit]


def listed_features(encoder: Encoder) -> tuple[Feature, ...]:
    """The features whose values alone decide that `input_warnings` lists them, also in a row that is not outside.

    An unseen category does not make a row unlike the training rows where rare categories of the training rows share its
    column. Without a distribution of the features every value outside its training range is listed.
    """
    if encoder.distribution is None:
        return encoder.schema.features
    return tuple(
        feature
        for feature, part in zip(encoder.schema.features, encoder.parts, strict=True)
        if feature.kind is FeatureKind.CATEGORICAL and part.training_range().any(axis=0).all()
    )


def listed_rows(
    features: tuple[Feature, ...], columns: Columns, incomplete: NDArray[np.intp]
) -> NDArray[np.bool_] | None:
    """The rows with a value or an imputed cell that `input_warnings` lists, whether they are outside or not.

    Args:
        features: `listed_features` of the encoder.
        columns: The features' canonical columns, each ``[B]``.
        incomplete: Numbers of the rows with a cell to impute.

    Returns:
        A mask ``[B]``, or None if there is no such row, which costs next to nothing.
    """
    if not features and not len(incomplete):
        return None
    listed = np.zeros(len(next(iter(columns.values()))), dtype=np.bool_)
    listed[incomplete] = True
    for feature in features:
        listed[outside_rows(feature, columns[feature.name])] = True
    return listed
