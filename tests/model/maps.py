"""Maps of normal scores for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.calibration.conformal import ConformalMap

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["odd_map"]


def odd_map(nominal: Sequence[float], observed: Sequence[float], rows: int) -> ConformalMap:
    """The symmetric map with these knots above the median."""
    sides = [(*(-knot for knot in reversed(knots)), 0.0, *knots) for knots in (nominal, observed)]
    return ConformalMap(sides[0], sides[1], rows)
