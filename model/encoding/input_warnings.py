"""Warnings beside an answer, for people: inputs that are unlike all training rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.schema import UnfamiliarValue, with_unit, written

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns
    from murho.model.encoding.encoder import Encoder
    from murho.model.encoding.whitening import Whitening

__all__ = ["input_warnings"]


def input_warnings(
    encoder: Encoder,
    columns: Columns,
    limit: int | None = None,
    *,
    among: NDArray[np.bool_] | None = None,
) -> list[UnfamiliarValue]:
    """Lists values outside the training range, unseen categories, gaps, and combinations unlike all training rows.

    Missing cells are never listed, and combinations only where nothing else is to be said of the row.

    Args:
        encoder: Knows the training rows.
        columns: The features' canonical columns, each ``[B]``.
        limit: List no more than this many, the first ones.
        among: Rows beyond the training rows, ``[B]``, if that is known already, as with a prediction
            (`model.engines.prediction.Prediction.outside`): no other has a value in a gap, or a combination unlike
            all.

    Returns:
        One entry a value or combination, by row, then in the order of the features.
    """
    if limit == 0:
        return []
    found = encoder.schema.outside(columns, limit)
    rows = np.arange(len(next(iter(columns.values())))) if among is None else np.flatnonzero(among)
    if rows.size:
        found += _in_gaps(encoder, columns, rows, limit)
        if encoder.whitening is not None:
            named = {item.row for item in found}
            found += _combinations(encoder.whitening, columns, rows, named, limit)
    order = {feature.name: position for position, feature in enumerate(encoder.schema.features)}
    return sorted(found, key=lambda item: (item.row, order[item.feature]))[:limit]


def _in_gaps(
    encoder: Encoder, columns: Columns, rows: NDArray[np.intp], limit: int | None
) -> list[UnfamiliarValue]:
    """Values in gaps, of some rows."""
    found = []
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
            found.append(UnfamiliarValue(int(row), feature.name, message))
    return found


def _combinations(
    whitening: Whitening, columns: Columns, rows: NDArray[np.intp], named: set[int], limit: int | None
) -> list[UnfamiliarValue]:
    """Those of some rows that break a pattern of all training rows, unless they are ``named`` already."""
    _, further = whitening.encode(columns, rows)
    found = []
    for place in np.flatnonzero(further.any(axis=1))[: None if limit is None else limit + len(named)]:
        row = rows[place]
        if int(row) in named:
            continue
        # Of the direction that lies furthest out, the two numbers that say most about it.
        axis = whitening.axes[:, np.abs(further[place]).argmax()]
        first, second = (whitening.features[number] for number in np.abs(axis).argsort()[::-1][:2])
        message = f"its combination with {second!r} is unlike all training rows, each value by itself is not"
        found.append(UnfamiliarValue(int(row), first, message))
    return found
