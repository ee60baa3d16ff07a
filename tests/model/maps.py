"""Calibrations for tests."""

from collections.abc import Sequence
from typing import Any

from murho.model.calibration.conformal import ConformalMap
from murho.model.checkpoint.spec import ModelSpec


def odd_map(nominal: Sequence[float], observed: Sequence[float], rows: int) -> ConformalMap:
    """Return the symmetric map with these knots above the median."""
    sides = [(*(-knot for knot in reversed(knots)), 0.0, *knots) for knots in (nominal, observed)]
    return ConformalMap(sides[0], sides[1], rows)


def calibration_of(spec: ModelSpec) -> Any:
    """Return the calibration of a checkpoint, which it must have, of either kind."""
    assert spec.calibration is not None
    return spec.calibration
