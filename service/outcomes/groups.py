"""Groups of predictions by a feature: a category each, or a quarter of the training range of a number or date."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from murho.model.tables.cells import parse_date
from murho.model.tables.schema import FeatureKind, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from murho.model.tables.schema import Feature

__all__ = ["MISSING", "OTHER", "FeatureFacts", "group_names"]

PARTS = 4
MISSING, OTHER = "(missing)", "(other)"


class FeatureFacts(msgspec.Struct, frozen=True):
    """What tells the groups of a feature.

    Attributes:
        name: The feature's name.
        date: Whether its cells are dates.
        categories: Its categories; None for a number or a date.
        edges: Where the parts of a number's range meet, rising.
        groups: The names of these parts.
    """

    name: str
    date: bool
    categories: tuple[str, ...] | None
    edges: tuple[float, ...]
    groups: tuple[str, ...]

    @classmethod
    def of(cls, feature: Feature) -> Self:
        """Returns the facts of a feature."""
        date, low, high = feature.kind is FeatureKind.DATE, feature.minimum, feature.maximum
        if feature.kind is FeatureKind.CATEGORICAL:
            return cls(feature.name, date, feature.categories, (), ())
        if feature.kind is FeatureKind.BOOLEAN:
            return cls(feature.name, date, ("false", "true"), (), ())
        if low is None or high is None or low == high:
            return cls(feature.name, date, None, (), ("any",))
        edges = [low + (high - low) * part / PARTS for part in range(1, PARTS)]
        edges = [float(round(edge)) if date else float(f"{edge:.3g}") for edge in edges]
        edges = sorted(set(edges))
        texts = [written(feature, edge) for edge in edges]
        between = (f"{left} to {right}" for left, right in pairwise(texts))
        return cls(feature.name, date, None, tuple(edges), (f"below {texts[0]}", *between, f"{texts[-1]} and above"))

    def group(self, cell: Any) -> str:
        """Returns the group of a cell, as requests and the store have it."""
        if cell is None:
            return MISSING
        if self.categories is not None:
            named = str(cell).lower() if isinstance(cell, bool) else str(cell)
            return named if named in self.categories else OTHER
        value = parse_date(cell) if self.date else float(cell)
        return self.groups[sum(value >= edge for edge in self.edges)]


def group_names(row: Mapping[str, Any], features: Iterable[FeatureFacts]) -> list[tuple[str, str]]:
    """Returns the features of a row's cells, each with the group that the row is in."""
    return [(feature.name, feature.group(row[feature.name])) for feature in features if feature.name in row]
