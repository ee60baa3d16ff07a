"""Gaps within the range of a feature, where no training row lies.

A mean-field network is as sure in a gap as beside it: independent Gaussians on the weights hold next to no uncertainty
in between (Foong, Li, Hernandez-Lobato and Turner 2019, "'In-Between' Uncertainty in Bayesian Neural Networks"). So
the distance to the training values counts in a gap as the distance to the range does beyond it, see
`model.encoding.range_distance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.data.schema import FeatureKind
from murho.model.encoding.feature_encodings import Scaled
from murho.model.json_validation import expect_numbers, wrong

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from murho.model.data.schema import Columns, Schema
    from murho.model.encoding.feature_encodings import FeatureEncoding
    from murho.model.encoding.scaling import Scale

__all__ = ["SupportGaps", "fit_support_gaps", "support_gaps_from_json"]

LEAST_WIDTH = 0.25
"""Least width of a gap, in standard deviations of the feature."""
LEAST_SPACINGS = 1.5
"""Least width in median spacings of the distinct training values: between integers there are no gaps."""
MEASURED = (FeatureKind.NUMERIC, FeatureKind.DATE)
MARGIN = 0.01
"""Share of a gap at either end that is no gap: new rows of a cluster lie a little beyond the old ones."""
MOST_GAPS = 64
"""Most gaps of a feature; the widest are taken."""


@dataclass(frozen=True)
class SupportGaps:
    """Where the training values of one feature leave gaps.

    Attributes:
        ends: Training values between which there is no other, G pairs, rising.
    """

    ends: tuple[tuple[float, float], ...]

    @classmethod
    def fit(cls, column: npt.NDArray[np.float64], scale: Scale) -> Self:
        """Finds the gaps of the training rows.

        Args:
            column: The feature's training values, ``[N]``; NaN is not looked at.
            scale: What standardises them.
        """
        values = np.unique(column[np.isfinite(column)])
        if values.size < 2:
            return cls(())
        with np.errstate(over="ignore"):  # beside what is infinitely wide nothing is a gap
            widths = np.diff(values)
            least = max(LEAST_WIDTH * scale.std, LEAST_SPACINGS * float(np.median(widths)))
        wide = np.flatnonzero(widths > least)
        widest = np.sort(wide[np.argsort(-widths[wide], kind="stable")[:MOST_GAPS]])
        return cls(tuple(zip(values[widest].tolist(), values[widest + 1].tolist(), strict=True)))

    def __len__(self) -> int:
        """G, how many there are."""
        return len(self.ends)

    def distance(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Depth of each value in a gap, 0 elsewhere: ``a b / sqrt(a^2 + b^2)`` at a and b from its margins.

        A line from either end, its slope of some variance, leaves a variance in proportion to a^2 or b^2; of the
        two together, each weighted by its precision, to ``1 / (1 / a^2 + 1 / b^2)``.

        Args:
            values: ``[B]``; NaN where missing.

        Returns:
            ``[B]`` in the unit of the values, never NaN.
        """
        place = np.searchsorted(self._flat, values)  # odd within a gap; NaN is put after all others
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
        """The ends of the gap in which a value lies."""
        return next((low, high) for low, high in self.ends if low < value < high)

    @cached_property
    def _flat(self) -> npt.NDArray[np.float64]:
        return np.array(self.ends).ravel()

    def to_json(self) -> list[Any]:
        """Returns the ends."""
        return [list(gap) for gap in self.ends]

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """Reads what `to_json` returned.

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


def fit_support_gaps(
    schema: Schema, parts: Sequence[FeatureEncoding], columns: Columns
) -> dict[str, SupportGaps]:
    """The gaps of all numbers and dates that have any, except of columns with outliers.

    The distance input of such a column has learned from the outliers, and can't stand for gaps as well.

    Args:
        schema: The features.
        parts: Their encodings, which standardise numbers and dates.
        columns: Canonical columns of the training rows, ``[N]`` each.
    """
    found = {}
    for feature, part in zip(schema.features, parts, strict=True):
        if feature.kind in MEASURED and isinstance(part, Scaled) and np.isinf(part.scale.limit):
            gaps = SupportGaps.fit(columns[feature.name], part.scale)
            if len(gaps) > 0:
                found[feature.name] = gaps
    return found


def support_gaps_from_json(data: object, schema: Schema, where: str) -> dict[str, SupportGaps]:
    """Reads the gaps of some features, by their names.

    Raises:
        CheckpointError: The data don't fit; the message names the field.
    """
    known = [feature.name for feature in schema.features if feature.kind in MEASURED]
    if not isinstance(data, dict) or any(name not in known for name in data):
        raise wrong(where, f"gaps by the names of numbers or dates, {known}", data)
    return {name: SupportGaps.from_json(gaps, f"{where}.{name}") for name, gaps in data.items()}
