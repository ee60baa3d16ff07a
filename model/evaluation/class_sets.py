"""Scores of prediction sets on labelled rows: how often they hold the row's class, and how large they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["SET_COVERAGES", "set_scores", "set_scores_by_class"]

SET_COVERAGES = (80, 90, 95)
"""Nominal coverage of the reported prediction sets, per cent."""


def set_scores(
    sets: Mapping[int, NDArray[np.bool_]], labels: NDArray[np.int64], weights: NDArray[np.float64] | None = None
) -> dict[str, dict[str, float]]:
    """Coverage and mean size of prediction sets.

    Args:
        sets: By nominal coverage, per cent: whether each class is in each row's set, ``[N, C]``.
        labels: ``[N]``.
        weights: ``[N]``; None: all rows count alike.

    Returns:
        ``coverage`` (shares) and ``size`` (numbers of classes), each by nominal coverage: ``{"80": …, "90": …}``.
    """
    rows = np.arange(len(labels))
    return {
        "coverage": {str(at): float(np.average(held[rows, labels], weights=weights)) for at, held in sets.items()},
        "size": {str(at): float(np.average(held.sum(axis=1), weights=weights)) for at, held in sets.items()},
    }


def set_scores_by_class(
    sets: Mapping[int, NDArray[np.bool_]],
    labels: NDArray[np.int64],
    names: Sequence[str],
    weights: NDArray[np.float64] | None = None,
) -> dict[str, dict[str, dict[str, float]] | None]:
    """`set_scores` of the rows of each class; None for a class without rows. ``names`` are those of the C classes."""
    found: dict[str, dict[str, dict[str, float]] | None] = {}
    for number, name in enumerate(names):
        rows = labels == number if weights is None else (labels == number) & (weights > 0.0)
        of_class = {coverage: held[rows] for coverage, held in sets.items()}
        chosen = None if weights is None else weights[rows]
        found[name] = set_scores(of_class, labels[rows], chosen) if rows.any() else None
    return found
