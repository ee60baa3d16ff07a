"""Durations and times of the day: ``1:02:03``, ``12:30``, ``2 days 03:04:05``, ``1 h 30 min``, ``PT1H30M``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias, cast

from murho.model.data.number_readings import is_missing_word
from murho.model.json_validation import expect_fields, wrong

__all__ = ["DurationReading", "TimeUnit", "clock_parts"]

TimeUnit: TypeAlias = Literal["s", "min"]

_CLOCK = re.compile(
    r"(?P<sign>[+-])?(?:(?P<days>[0-9]+)\s*d(?:ays?)?,?\s+)?(?P<first>[0-9]{1,4}):(?P<second>[0-5][0-9])"
    r"(?:[.,](?P<fraction>[0-9]{1,6})|:(?P<third>[0-5][0-9](?:[.,][0-9]+)?))?(?:\s*(?P<half>[aApP])\.?[mM]\.?)?"
)
_WORDS = re.compile(r"(?:[0-9]+(?:[.,][0-9]+)?\s*[a-z]+\.?,?\s*)+")
_WORD = re.compile(r"([0-9]+(?:[.,][0-9]+)?)\s*([a-z]+)")
_ISO = re.compile(
    r"(?P<sign>-)?P(?:(?P<weeks>[0-9.]+)W)?(?:(?P<days>[0-9.]+)D)?"
    r"(?:T(?:(?P<hours>[0-9.]+)H)?(?:(?P<minutes>[0-9.]+)M)?(?:(?P<seconds>[0-9.]+)S)?)?"
)
_ISO_SECONDS = {"weeks": 604_800.0, "days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0}
_SECONDS = {
    **dict.fromkeys(("w", "wk", "wks", "week", "weeks"), 604_800.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    "ms": 1e-3,
}
_LONGEST = 64


def clock_parts(text: str) -> tuple[int, int] | None:
    """How many parts a text such as ``1:02:03`` has, and the first of them; None for another text.

    With days before it, or a fraction after it, a text has three parts: it is then known what they are.
    """
    found = _CLOCK.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if found is None:
        return None
    known = any(found[part] is not None for part in ("third", "days", "fraction"))
    return 3 if known else 2, int(found["first"])


@dataclass(frozen=True, slots=True)
class DurationReading:
    """Texts of a column as durations.

    Attributes:
        unit: Unit of the numbers. ``12:30`` is 12 h 30 min if it is ``min``, and 12 min 30 s if it is ``s``.
    """

    form: ClassVar[str] = "duration"

    unit: TimeUnit = "s"

    def parse(self, text: str) -> float:
        """The duration in a cell, in `unit`; NaN for a text that stands for a missing cell.

        Raises:
            ValueError: The text is no duration.
        """
        if is_missing_word(text):
            return float("nan")
        stripped = text.strip()
        seconds = None
        if len(stripped) <= _LONGEST:
            seconds = self._clock(stripped)
            if seconds is None:
                seconds = _iso(stripped)
            if seconds is None:
                seconds = _words(stripped.lower())
        if seconds is None:
            raise ValueError(f"{text!r} is not a duration such as {'1:02:03' if self.unit == 's' else '12:30'!r}")
        return seconds / (60.0 if self.unit == "min" else 1.0)

    def _clock(self, text: str) -> float | None:
        """Seconds in a text with colons."""
        found = _CLOCK.fullmatch(text)
        if found is None:
            return None
        first, second, days = int(found["first"]), int(found["second"]), int(found["days"] or 0)
        if found["half"] is not None:
            if not 1 <= first <= 12:
                return None
            first = first % 12 + (12 if found["half"] in "pP" else 0)
        if found["fraction"] is not None:
            seconds = 60.0 * first + float(f"{second}.{found['fraction']}")
        elif found["third"] is None and self.unit == "s" and not days and found["half"] is None:
            seconds = 60.0 * first + second
        else:
            seconds = (
                86_400.0 * days + 3_600.0 * first + 60.0 * second + float((found["third"] or "0").replace(",", "."))
            )
        return -seconds if found["sign"] == "-" else seconds

    def describe(self) -> str:
        """What was recognised, for people."""
        return f"durations or times of the day, in {'seconds' if self.unit == 's' else 'minutes'}"

    def to_json(self) -> dict[str, Any]:
        """Return the reading as JSON data."""
        return {"form": self.form, "unit": self.unit}

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """Read what `to_json` returned; raises a CheckpointError that names the field."""
        fields = expect_fields(data, where, ("form", "unit"))
        if fields["unit"] not in ("s", "min"):
            raise wrong(f"{where}.unit", "'s' or 'min'", fields["unit"])
        return cls(cast("TimeUnit", fields["unit"]))


def _iso(text: str) -> float | None:
    """Seconds in an ISO 8601 duration."""
    found = _ISO.fullmatch(text)
    if found is None or not any(found[name] for name in _ISO_SECONDS):
        return None
    try:
        seconds = sum(float(found[name]) * factor for name, factor in _ISO_SECONDS.items() if found[name])
    except ValueError:
        return None
    return -seconds if found["sign"] else seconds


def _words(text: str) -> float | None:
    """Seconds in a text such as ``1 h 30 min``."""
    if _WORDS.fullmatch(text) is None:
        return None
    total = 0.0
    for amount, unit in _WORD.findall(text):
        if unit not in _SECONDS:
            return None
        total += float(amount.replace(",", ".")) * _SECONDS[unit]
    return total
