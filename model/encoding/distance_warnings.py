"""Warnings about rows that are far from the training rows as a whole, and about missing cells that are imputed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.columns import is_missing
from murho.model.data.feature import with_unit
from murho.model.data.schema import FeatureKind, UnfamiliarValue
from murho.model.encoding.distance_inputs import isolated_numbers
from murho.model.encoding.row_distance import RowDistances, odd_combinations

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.data.feature import Feature
    from murho.model.data.schema import Columns, Schema
    from murho.model.encoding.feature_distribution import FeatureDistribution

__all__ = ["distance_warnings"]


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
