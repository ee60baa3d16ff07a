"""Warnings in an answer, for people, about inputs that are unlike the training rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.feature import outside_rows, with_unit, written
from murho.model.data.schema import FeatureKind, UnfamiliarValue
from murho.model.encoding.distance_warnings import distance_warnings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns, Feature
    from murho.model.encoding.encoder import Encoder
    from murho.model.encoding.whitening import Whitening

__all__ = ["input_warnings", "listed_features", "listed_rows"]


def input_warnings(
    encoder: Encoder,
    columns: Columns,
    limit: int | None = None,
    *,
    among: NDArray[np.bool_] | None = None,
) -> list[UnfamiliarValue]:
    """List unseen categories, missing cells that are imputed, and what makes rows unlike the training rows.

    The distance of a row decides whether it is unlike (`model.encoding.distance_warnings`). Older checkpoints have no
    distance: then values outside the training range, values in gaps and unusual combinations are listed, and missing
    cells never are.

    Args:
        encoder: The encoder fitted to the training rows.
        columns: The features' canonical columns, each ``[B]``.
        limit: Largest number of entries: the first ones; None for all.
        among: Whether each row lies outside the training range, ``[B]``, if known
            (`model.engines.prediction.Prediction.outside`): only such rows are searched for gaps and combinations.

    Returns:
        One entry per value or combination, sorted by row, then by feature in schema order.
    """
    if limit == 0:
        return []
    order = {feature.name: position for position, feature in enumerate(encoder.schema.features)}
    if encoder.distribution is None:
        warnings = _without_distance(encoder, columns, limit, among)
    else:
        warnings = distance_warnings(encoder.distribution, encoder.schema, columns, limit, among=among)
    return sorted(warnings, key=lambda warning: (warning.row, order[warning.feature]))[:limit]


def listed_features(encoder: Encoder) -> tuple[Feature, ...]:
    """The features whose values alone decide that `input_warnings` lists them, also in a row that is not outside.

    An unseen category does not make a row unlike the training rows where rare categories of the training rows share its
    column. In older checkpoints, which have no distance of rows, every value outside its training range is listed.
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


def _without_distance(
    encoder: Encoder, columns: Columns, limit: int | None, among: NDArray[np.bool_] | None
) -> list[UnfamiliarValue]:
    """Return the warnings of an older checkpoint. Combinations count only in rows without any other warning."""
    warnings = encoder.schema.outside(columns, limit)
    rows = np.arange(len(next(iter(columns.values())))) if among is None else np.flatnonzero(among)
    if rows.size:
        warnings += _in_gaps(encoder, columns, rows, limit)
        if encoder.whitening is not None:
            warned = {warning.row for warning in warnings}
            warnings += _combinations(encoder.whitening, columns, rows, warned, limit)
    return warnings


def _in_gaps(encoder: Encoder, columns: Columns, rows: NDArray[np.intp], limit: int | None) -> list[UnfamiliarValue]:
    """Return warnings about values in gaps, for the rows with these indices."""
    warnings = []
    for feature in encoder.schema.features:
        gaps = encoder.gaps.get(feature.name)
        if gaps is None:
            continue
        column = columns[feature.name]
        for row in rows[np.flatnonzero(gaps.distance(column[rows]))[:limit]]:
            low, high = gaps.around(column[row])
            message = (
                f"{with_unit(feature, column[row])} is in a gap of the training rows, between "
                f"{written(feature, low)} and {with_unit(feature, high)}"
            )
            warnings.append(UnfamiliarValue(int(row), feature.name, message))
    return warnings


def _combinations(
    whitening: Whitening, columns: Columns, rows: NDArray[np.intp], warned: set[int], limit: int | None
) -> list[UnfamiliarValue]:
    """Return warnings about rows that break a pattern of all training rows; ``warned`` rows are skipped."""
    _, further = whitening.encode(columns, rows)
    warnings = []
    for place in np.flatnonzero(further.any(axis=1))[: None if limit is None else limit + len(warned)]:
        row = rows[place]
        if int(row) in warned:
            continue
        # The two features with the largest weights in the direction that lies furthest out.
        axis = whitening.axes[:, np.abs(further[place]).argmax()]
        first, second = (whitening.features[number] for number in np.abs(axis).argsort()[::-1][:2])
        message = f"its combination with {second!r} is unlike all training rows; each value alone is ordinary"
        warnings.append(UnfamiliarValue(int(row), first, message))
    return warnings
