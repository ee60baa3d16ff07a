"""Warnings in an answer, for people, about inputs that are unlike the training rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.feature import outside_rows
from murho.model.data.schema import FeatureKind, UnfamiliarValue
from murho.model.encoding.distance_warnings import distance_warnings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns, Feature
    from murho.model.encoding.encoder import Encoder

__all__ = ["input_warnings", "listed_features", "listed_rows"]


def input_warnings(
    encoder: Encoder,
    columns: Columns,
    limit: int | None = None,
    *,
    among: NDArray[np.bool_] | None = None,
) -> list[UnfamiliarValue]:
    """List unseen categories, missing cells that are imputed, and what makes rows unlike the training rows.

    The distance of a row decides whether it is unlike (`model.encoding.distance_warnings`). Without a distribution of
    the features, values outside the training range are listed.

    Args:
        encoder: The encoder fitted to the training rows.
        columns: The features' canonical columns, each ``[B]``.
        limit: Largest number of entries: the first ones; None for all.
        among: Whether each row lies outside the training range, ``[B]``, if known
            (`model.engines.prediction.Prediction.outside`): only such rows are searched for what makes them so.

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
