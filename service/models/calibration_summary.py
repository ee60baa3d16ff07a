"""The calibration of a model in short, for people: its map has hundreds of numbers."""

from __future__ import annotations

from typing import Any

__all__ = ["calibration_summary"]


def calibration_summary(calibration: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns a calibration, as `model.json` has it, without its lists.

    What is left is the method and the number of held-out rows, of the map and of the sets for a classifier, and other
    single numbers. None stays None: the model is not calibrated.
    """
    if calibration is None:
        return None
    return {
        key: calibration_summary(value) if isinstance(value, dict) else value
        for key, value in calibration.items()
        if not isinstance(value, list)
    }
