"""Gaps within the range of a feature, in checkpoints that have them. New ones do not: they gained nothing.

In such checkpoints the distance of `model.encoding.range_distance` is above zero also where no training row lies
between two values of a feature. This module reads them, so that they answer as ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.data.schema import FeatureKind
from murho.model.json_validation import expect_numbers, wrong

if TYPE_CHECKING:
    import numpy.typing as npt

    from murho.model.data.schema import Schema

__all__ = ["SupportGaps", "support_gaps_from_json"]

MEASURED = (FeatureKind.NUMERIC, FeatureKind.DATE)
MARGIN = 0.01
"""Share of a gap's width at either end that does not count: new rows of a cluster lie slightly beyond old ones."""


@dataclass(frozen=True)
class SupportGaps:
    """The gaps between the training values of one feature.

    Attributes:
        ends: Lower and upper end of each gap, both training values: G pairs, in increasing order.
    """

    ends: tuple[tuple[float, float], ...]

    def __len__(self) -> int:
        """Number of gaps, G."""
        return len(self.ends)

    def distance(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the depth of each value in a gap, ``a b / sqrt(a^2 + b^2)``, and 0 outside gaps.

        a and b are the distances of the value from the two margins of its gap. A line from one end, with a random
        slope, has a variance in proportion to a^2, and one from the other end to b^2. Both together, weighted by their
        precisions, have a variance in proportion to ``1 / (1 / a^2 + 1 / b^2)``, the square of the depth.

        Args:
            values: ``[B]``; NaN where missing.

        Returns:
            ``[B]`` in the unit of the values, never NaN.
        """
        place = np.searchsorted(self._flat, values)  # odd within a gap; NaN sorts after all others
        distances = np.zeros(len(values))
        if (place & 1).any():
            inside = np.flatnonzero(place & 1)
            upper, within = place[inside], values[inside]
            low, high = self._flat[upper - 1], self._flat[upper]
            margin = MARGIN * (high - low)
            above, below = np.maximum(within - low - margin, 0.0), np.maximum(high - within - margin, 0.0)
            with np.errstate(divide="ignore", over="ignore"):
                distances[inside] = above / np.hypot(1.0, above / below)
        return distances

    def around(self, value: float) -> tuple[float, float]:
        """Return the ends of the gap that holds a value."""
        return next((low, high) for low, high in self.ends if low < value < high)

    @cached_property
    def _flat(self) -> npt.NDArray[np.float64]:
        return np.array(self.ends).ravel()

    def to_json(self) -> list[Any]:
        """Return the ends as JSON data."""
        return [list(gap) for gap in self.ends]

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """Read what `to_json` returned.

        Raises:
            CheckpointError: The data don't fit; the message names the field, which begins with ``where``.
        """
        if not isinstance(data, list) or not data:
            raise wrong(where, "a list of gaps, at least one", data)
        gaps: list[tuple[float, float]] = []
        for number, gap in enumerate(data):
            ends = expect_numbers(gap, f"{where}[{number}]")
            if len(ends) != 2 or ends[0] >= ends[1] or (gaps and ends[0] < gaps[-1][1]):
                raise wrong(f"{where}[{number}]", "a lower and a higher end, after those before", gap)
            gaps.append((ends[0], ends[1]))
        return cls(tuple(gaps))


def support_gaps_from_json(data: object, schema: Schema, where: str) -> dict[str, SupportGaps]:
    """Read the gaps of features, by feature name.

    Raises:
        CheckpointError: The data don't fit; the message names the field.
    """
    known = [feature.name for feature in schema.features if feature.kind in MEASURED]
    if not isinstance(data, dict) or any(name not in known for name in data):
        raise wrong(where, f"gaps by the names of numbers or dates, {known}", data)
    return {name: SupportGaps.from_json(gaps, f"{where}.{name}") for name, gaps in data.items()}
