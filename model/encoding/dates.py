"""Encoding of dates: linear time, and sine and cosine of the calendar cycles that vary in training."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.encoding.feature_encodings import fill_missing, missing_names, training_range_of_numbers
from murho.model.encoding.scaling import Scale
from murho.model.json_validation import expect_fields, wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from murho.model.data.schema import Feature

__all__ = ["Calendar"]

_CYCLES: Mapping[str, int] = MappingProxyType({"month": 12, "weekday": 7, "hour": 24})
_ANGLES = {part: 2 * np.pi * np.arange(length, dtype=np.float64) / length for part, length in _CYCLES.items()}
_SINES_COSINES = {part: np.stack([np.sin(angle), np.cos(angle)], axis=1) for part, angle in _ANGLES.items()}


@dataclass(frozen=True)
class Calendar:
    """A date as standardised linear time, and sine and cosine of the calendar parts that vary in training.

    The parts are the month of the year, the day of the week and the hour of the day, in UTC. The day of the week counts
    only if the day of the month varies too: the weekdays of monthly or yearly dates carry no information.
    """

    feature: Feature
    scale: Scale
    parts: tuple[str, ...]

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:
        """Fit to the training rows' column ``[N]``."""
        calendar = _calendar(column[~np.isnan(column)])
        varying = {part for part, values in calendar.items() if np.unique(values).size > 1}
        if "day" not in varying:
            varying.discard("weekday")
        return cls(feature, Scale.fit(column), tuple(part for part in _CYCLES if part in varying))

    @property
    def names(self) -> tuple[str, ...]:
        """Names such as ``Sold``, ``Sold month sine``, ``Sold month cosine``, ``Sold is missing``."""
        name = self.feature.name
        parts = (f"{name} {part} {wave}" for part in self.parts for wave in ("sine", "cosine"))
        return (name, *parts, *missing_names(self.feature))

    def training_range(self) -> npt.NDArray[np.float32]:
        """Range of the linear time in training; infinite bounds for sines and cosines (`FeatureEncoding`)."""
        return training_range_of_numbers(self, self.feature, 1)

    def encode(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Write the encoding of the column ``[B]`` of days into ``out``."""
        out[:, 0] = self.scale.apply(column)
        if self.parts:
            calendar = _calendar(column)
            for position, part in enumerate(self.parts):
                out[:, 1 + 2 * position : 3 + 2 * position] = _SINES_COSINES[part][calendar[part]]
        if self.feature.missing:
            fill_missing(column, out)

    def to_json(self) -> dict[str, Any]:
        """Return the scale and the parts."""
        return {"scale": self.scale.to_json(), "parts": list(self.parts)}

    @classmethod
    def from_json(cls, feature: Feature, data: object, where: str) -> Self:
        """Read the scale and the parts."""
        fields = expect_fields(data, where, ("scale", "parts"))
        parts = fields["parts"]
        if not isinstance(parts, list) or parts != [part for part in _CYCLES if part in parts]:
            raise wrong(f"{where}.parts", f"some of {', '.join(_CYCLES)}, in this order", parts)
        return cls(feature, Scale.from_json(fields["scale"], f"{where}.scale"), tuple(parts))


def _calendar(days: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.int64]]:
    """Return month (0 to 11), day of the month (0 to 30), weekday (Monday is 0) and hour; arbitrary for NaN."""
    # Round to whole seconds first: 13 hours as a fraction of a day may lie just below 13. Years end at ±270,000.
    seconds = np.rint(np.clip(np.nan_to_num(days), -1e8, 1e8) * 86_400).astype(np.int64)
    whole = seconds // 86_400
    dates = whole.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    return {
        "month": months.astype(np.int64) % 12,
        "day": (dates - months.astype("datetime64[D]")).astype(np.int64),
        "weekday": (whole + 3) % 7,  # 1970-01-01 was a Thursday
        "hour": seconds % 86_400 // 3_600,
    }
