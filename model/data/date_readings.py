"""Dates in other forms than ISO 8601: ``31/12/2020 14:30``, ``12/31/20``, ``31 Dec 2020``, and dates as plain numbers.

Whether ``03/04/2020`` is in March or in April is decided by the column as a whole (`model.data.reading_inference`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, cast

from murho.model.data.cells import parse_date
from murho.model.data.number_readings import is_missing_word
from murho.model.data.time_zones import ZONE_PATTERN, zone_of
from murho.model.json_validation import expect_fields, wrong

__all__ = ["COUNTS", "CountedDateReading", "DateCount", "DateOrder", "DateReading", "WrittenDay", "written_day"]

DateOrder: TypeAlias = Literal["day-first", "month-first"]
DateCount: TypeAlias = Literal["s", "ms", "us", "ns", "yyyymmdd"]

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            *("january", "february", "march", "april", "may", "june", "july", "august"),
            *("september", "october", "november", "december"),
        ),
        start=1,
    )
    for name in (names, names[:3], *(("sept",) if number == 9 else ()))
}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+)?"
_CLOCK = (
    r"(?:(?:\s+|t|,\s*)(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
    rf"(?:\s*(?P<half>[ap])\.?m\.?)?\s*(?P<zone>{ZONE_PATTERN}))?"
)
_FORMS = tuple(
    re.compile(_WEEKDAY + day + _CLOCK, re.IGNORECASE)
    for day in (
        r"(?P<first>[0-9]{1,2})(?P<mark>[./\-])(?P<other>[0-9]{1,2})(?P=mark)(?P<year>[0-9]{4}|[0-9]{2})",
        r"(?P<year>[0-9]{4})(?P<mark>[./\-])(?P<month>[0-9]{1,2})(?P=mark)(?P<day>[0-9]{1,2})",
        rf"(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)?[ .\-]*(?P<name>{_MONTH})\.?[ ,\-]*(?P<year>[0-9]{{4}}|[0-9]{{2}})",
        rf"(?P<name>{_MONTH})\.?[ \-]*(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)?,?[ \-]+(?P<year>[0-9]{{4}})",
        rf"(?P<name>{_MONTH})\.?[ ,\-]*(?P<year>[0-9]{{4}})",
        r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})",
    )
)
_LONGEST = 64
_DAY_SECONDS = 86_400.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PIVOT = 69
"""Years of two digits below this are in the 2000s, as POSIX has it."""
COUNTS: dict[DateCount, float] = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""Unit of dates that are counted from 1970-01-01 UTC → how many of them a second has."""


class WrittenDay(NamedTuple):
    """The numbers of a date such as ``03/04/2020`` whose order is not known.

    Attributes:
        first: The first number.
        second: The second number.
        mark: What stands between them.
    """

    first: int
    second: int
    mark: str


def _match(text: str) -> re.Match[str] | None:
    stripped = text.strip()
    if len(stripped) > _LONGEST:
        return None
    return next((found for form in _FORMS if (found := form.fullmatch(stripped))), None)


def written_day(text: str) -> WrittenDay | None:
    """The numbers of a text that `DateOrder` is about; None for any other."""
    found = _FORMS[0].fullmatch(text.strip()) if len(text) <= _LONGEST else None
    return None if found is None else WrittenDay(int(found["first"]), int(found["other"]), found["mark"])


@dataclass(frozen=True, slots=True)
class DateReading:
    """Texts of a column as dates; ISO 8601 is always read too.

    Attributes:
        order: Whether ``03/04/2020`` is the 3rd of April or in March; None for a column of other dates, such as
            ``3 Apr 2020``, which then refuses it.
    """

    form: ClassVar[str] = "date"

    order: DateOrder | None = None

    def parse(self, text: str) -> float:
        """Days since 1970-01-01 UTC; NaN for a text that stands for a missing cell. A time without a zone is UTC.

        Raises:
            ValueError: The text is no date of this order, or names a day that the calendar does not have.
        """
        if is_missing_word(text):
            return float("nan")
        try:
            return parse_date(text)
        except ValueError:
            found = _match(text)
        if found is None:
            raise ValueError(f"{text!r} is not a date such as {self.example()}")
        try:
            return (self._moment(found) - _EPOCH) / timedelta(days=1)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{text!r} is not a date such as {self.example()}: {error}") from error

    def _moment(self, found: re.Match[str]) -> datetime:
        parts = found.groupdict()
        if "first" in parts:
            if self.order is None:
                raise ValueError("whether its day or its month comes first is not known")
            first, other = int(parts["first"]), int(parts["other"])
            day, month = (first, other) if self.order == "day-first" else (other, first)
        else:
            day = int(parts.get("day") or 1)
            name = parts.get("name")
            month = _MONTHS[name.lower()] if name else int(parts["month"])
        year = int(parts["year"])
        if len(parts["year"]) == 2:
            year += 2000 if year < _PIVOT else 1900
        hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
        if parts["half"]:
            if not 1 <= hour <= 12:
                raise ValueError("hours before am and pm go from 1 to 12")
            hour = hour % 12 + (12 if parts["half"] in "pP" else 0)
        microsecond = int((parts["fraction"] or "").ljust(6, "0")[:6])
        return datetime(year, month, day, hour, minute, second, microsecond, tzinfo=zone_of(parts["zone"] or ""))

    def example(self) -> str:
        """A cell as this reading expects it."""
        return {"day-first": "31/12/2020", "month-first": "12/31/2020", None: "2020-12-31"}[self.order]

    def describe(self) -> str:
        """What was recognised, for people."""
        return "dates" if self.order is None else f"dates, {self.order}"

    def to_json(self) -> dict[str, Any]:
        """Return the reading as JSON data."""
        return {"form": self.form, "order": self.order}

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """Read what `to_json` returned; raises a CheckpointError that names the field."""
        fields = expect_fields(data, where, ("form", "order"))
        if fields["order"] not in ("day-first", "month-first", None):
            raise wrong(f"{where}.order", "'day-first', 'month-first' or null", fields["order"])
        return cls(cast("DateOrder | None", fields["order"]))


@dataclass(frozen=True, slots=True)
class CountedDateReading:
    """Numbers of a column as dates; ISO 8601 texts are read too.

    Attributes:
        count: What the numbers count from 1970-01-01 UTC, or ``yyyymmdd`` for numbers such as 20201231.
    """

    form: ClassVar[str] = "counted-date"

    count: DateCount = "s"

    def parse(self, text: str) -> float:
        """Days since 1970-01-01 UTC; NaN for a text that stands for a missing cell.

        Raises:
            ValueError: The text is neither such a number nor an ISO 8601 date.
        """
        if is_missing_word(text):
            return float("nan")
        try:
            number = float(text)
        except ValueError:
            return parse_date(text)
        return self.days(number)

    def days(self, number: float) -> float:
        """Days since 1970-01-01 UTC that a number stands for.

        Raises:
            ValueError: The number names a day that the calendar does not have, or lies beyond the year 9999.
        """
        if not math.isfinite(number):
            raise ValueError(f"{number} is not a date")
        if self.count == "yyyymmdd":
            written = f"{number:.0f}"
            if number != int(number) or len(written) != 8:
                raise ValueError(f"{number:.12g} is not a date such as 20201231")
            return parse_date(f"{written[:4]}-{written[4:6]}-{written[6:]}")
        days = number / COUNTS[self.count] / _DAY_SECONDS
        if not -719_162 <= days < 2_932_897:
            raise ValueError(f"{number:.12g} is beyond the years 1 to 9999: {self.describe()} are expected")
        return days

    def describe(self) -> str:
        """What was recognised, for people."""
        if self.count == "yyyymmdd":
            return "dates as numbers such as 20201231"
        names = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
        return f"dates as {names[self.count]} since 1970-01-01 (epoch)"

    def to_json(self) -> dict[str, Any]:
        """Return the reading as JSON data."""
        return {"form": self.form, "count": self.count}

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """Read what `to_json` returned; raises a CheckpointError that names the field."""
        fields = expect_fields(data, where, ("form", "count"))
        if fields["count"] not in (*COUNTS, "yyyymmdd"):
            raise wrong(f"{where}.count", f"one of {', '.join((*COUNTS, 'yyyymmdd'))}", fields["count"])
        return cls(cast("DateCount", fields["count"]))
