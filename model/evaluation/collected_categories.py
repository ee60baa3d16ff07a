"""The categorical and boolean columns of rows that come in blocks: the groups of the scores by category."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from murho.model.data.schema import Columns, Schema

__all__ = ["CollectedCategories"]


class CollectedCategories:
    """Canonical columns of N rows, of the features that have groups. Each category is in memory once.

    Attributes:
        columns: ``[N]`` each.
    """

    def __init__(self, schema: Schema, count: int) -> None:
        """Make the columns of N rows."""
        self.columns: dict[str, NDArray[Any]] = {}
        self._known: dict[Any, Any] = {}
        for feature in schema.features:
            if feature.kind is FeatureKind.CATEGORICAL:
                self.columns[feature.name] = np.full(count, None, object)
            elif feature.kind is FeatureKind.BOOLEAN:
                self.columns[feature.name] = np.empty(count)

    def of(self, blocks: Iterable[tuple[slice, Columns]]) -> Iterator[tuple[slice, Columns]]:
        """The same blocks, each with its place among the N rows; their cells are put into their places."""
        for rows, columns in blocks:
            self._add(rows, columns)
            yield rows, columns

    def _add(self, rows: slice, columns: Columns) -> None:
        for name, column in self.columns.items():
            cells = columns[name]
            if cells.dtype == object:  # blocks have texts of their own
                column[rows] = [self._known.setdefault(cell, cell) for cell in cells.tolist()]
            else:
                column[rows] = cells
