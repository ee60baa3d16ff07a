"""Scores of rows gathered part by part into arrays that are made once: no part is kept, and nothing is copied twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from murho.model.evaluation.metrics import COVERAGES
from murho.model.evaluation.row_scores import ROW_ARRAYS, RowScores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.evaluation.metrics import BandScores

__all__ = ["CollectedScores"]


class CollectedScores:
    """The scores of N rows, some 75 bytes a row."""

    def __init__(self, count: int, weights: NDArray[np.float64] | None = None) -> None:
        """Make the arrays.

        Args:
            count: N.
            weights: Weight of each row, ``[N]``; None: all are 1.
        """
        self._weights = weights
        self._arrays = {name: np.empty(count, bool if name == "outside" else np.float64) for name in ROW_ARRAYS}
        self._raw, self._calibrated = _Bands(count, weights), _Bands(count, weights)

    def add(self, rows: slice, part: RowScores) -> None:
        """Put the scores of rows into their places."""
        for name, values in self._arrays.items():
            values[rows] = getattr(part, name)
        self._raw.add(rows, part.raw)
        if part.calibrated is not None:
            self._calibrated.add(rows, part.calibrated)

    def joined(self) -> RowScores:
        """The scores of all rows, in order."""
        raw, calibrated = self._raw.joined(), self._calibrated.joined()
        if raw is None:
            raise ValueError("there are no rows")
        return RowScores(**self._arrays, raw=raw, calibrated=calibrated, weights=self._weights)


class _Bands:
    """Scores of the bands of N rows."""

    def __init__(self, count: int, weights: NDArray[np.float64] | None) -> None:
        self._inside, self._weights = np.empty((count, len(COVERAGES)), bool), weights
        self._sums: BandScores | None = None

    def add(self, rows: slice, part: BandScores) -> None:
        self._inside[rows] = part.inside
        sums = self._sums
        self._sums = replace(
            part,
            inside=self._inside,
            weights=self._weights,
            width=part.width if sums is None else sums.width + part.width,
            interval_score=part.interval_score if sums is None else sums.interval_score + part.interval_score,
            pinball=part.pinball if sums is None else sums.pinball + part.pinball,
        )

    def joined(self) -> BandScores | None:
        return self._sums
