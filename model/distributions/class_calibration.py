"""Calibration of a classifier: a map that makes its probabilities right, and its prediction sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from murho.model.distributions.class_map import ClassMap
from murho.model.distributions.prediction_sets import PredictionSets
from murho.model.json_validation import expect_fields, wrong

__all__ = ["CLASS", "ClassCalibration"]

CLASS = "class"
"""The ``method`` of the calibration of a classifier in ``model.json``; others are a regression's."""


@dataclass(frozen=True)
class ClassCalibration:
    """Calibration of a classifier, in place of a regression's `model.distributions.calibration.ConformalMap`.

    Attributes:
        map: From pooled to calibrated log-probabilities.
        sets: Prediction sets of calibrated probabilities.
    """

    map: ClassMap
    sets: PredictionSets

    @property
    def rows(self) -> int:
        """Number of held-out rows behind it."""
        return self.sets.rows

    def to_json(self) -> dict[str, Any]:
        """For ``model.json``."""
        return {"method": CLASS, "map": self.map.to_json(), "sets": self.sets.to_json()}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The inverse of `to_json`.

        Raises:
            CheckpointError: A field is missing, unknown or has a value that can't be used, or map and sets are of
                different numbers of classes.
        """
        fields = expect_fields(data, "calibration", ("method", "map", "sets"))
        if fields["method"] != CLASS:
            raise wrong("calibration.method", f'"{CLASS}"', fields["method"])
        fitted, sets = ClassMap.from_json(fields["map"]), PredictionSets.from_json(fields["sets"])
        if fitted.intercept and len(fitted.intercept) != sets.classes:
            raise wrong("calibration.map.intercept", f"{sets.classes} numbers, one for each class", fitted.intercept)
        return cls(fitted, sets)
