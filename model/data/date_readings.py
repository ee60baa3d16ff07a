"""Dates in other forms than ISO 8601: ``31/12/2020 14:30``, ``12/31/20``, ``31 Dec 2020``, ``Jul-75``.

Whether ``03/04/2020`` is in March or in April is decided by the column as a whole (`model.data.reading_inference`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias
from zoneinfo import ZoneInfo

from murho.model.data.cells import days_of, parse_date
from murho.model.data.number_readings import is_missing_word

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DateOrder", "DateReading", "written_day"]

DateOrder: TypeAlias = Literal["day-first", "month-first"]

_DAY = re.compile(r"\s*([0-9]{1,2})([./\-])([0-9]{1,2})\2([0-9]{4}|[0-9]{2})(?![0-9./\-])")
_ISO_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?![0-9-])")
_TOLD = re.compile(r"[A-Za-z]{3}|[0-9]{4}")
"""What a date has in any other form: a month's name, or a whole year."""
_LONGEST = 64
_PIVOT = 69
"""Years of two digits below this are in the 2000s, as POSIX has it."""


def written_day(text: str) -> tuple[int, int, str] | None:
    """The first two numbers of a date such as ``03/04/2020``, and what parts them; None for any other text."""
    found = _DAY.match(text) if len(text) <= _LONGEST else None
    return None if found is None else (int(found[1]), int(found[3]), found[2])


@dataclass(frozen=True, slots=True)
class DateReading:
    """Texts of a column as dates; ISO 8601 is always read too.

    Attributes:
        order: Whether ``03/04/2020`` is the 3rd of April or in March; None for a column of other dates, such as
            ``3 Apr 2020``, which then refuses it.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    order: DateOrder | None = None
    form: Literal["date"] = "date"

    def parse(self, text: str) -> float:
        """Days since 1970-01-01 UTC; NaN for a text that stands for a missing cell. A time without a zone is UTC.

        Raises:
            ValueError: The text is no date of this order, or names a day that the calendar does not have.
        """
        if is_missing_word(text):
            return float("nan")
        try:
            iso = self._in_iso_order(text)
            try:
                return parse_date(iso)
            except ValueError:
                return days_of(_reader()(iso))
        except (ValueError, OverflowError) as error:
            example = {"day-first": "31/12/2020", "month-first": "12/31/2020", None: "2020-12-31"}[self.order]
            raise ValueError(f"{text!r} is not a date such as {example}: {error}") from error

    def _in_iso_order(self, text: str) -> str:
        if len(text) > _LONGEST:
            raise ValueError("it is too long")
        found = _DAY.match(text)
        if found is None:
            return text
        if self.order is None:
            raise ValueError("whether its day or its month comes first is not known")
        day, month = (found[1], found[3]) if self.order == "day-first" else (found[3], found[1])
        return f"{date(_whole_year(int(found[4])), int(month), int(day))}{text[found.end() :]}"

    def describe(self) -> str:
        """What was recognised, for people."""
        return "dates" if self.order is None else f"dates, {self.order}"


def _whole_year(year: int) -> int:
    return year if year > 99 else year + (2000 if year < _PIVOT else 1900)


@cache
def _reader() -> Callable[[str], datetime]:
    """Reads a date in any form that has a year and a month; raises a ValueError."""
    from dateutil.parser import parser, parserinfo  # takes a while, and few tables need it

    years = parserinfo()
    years.convertyear = lambda year, century_specified=False: year if century_specified else _whole_year(year)
    reader = parser(years)

    def read(text: str) -> datetime:
        if _TOLD.search(text) is None:
            raise ValueError("it has neither a month's name nor a whole year")
        if _ISO_DAY.match(text):
            whole: datetime = reader.parse(text, tzinfos=_zone)
            return whole
        # What the text does not say comes from the default.
        one: datetime = reader.parse(text, default=datetime(2001, 1, 1), tzinfos=_zone)
        if one != reader.parse(text, default=datetime(2002, 2, 1), tzinfos=_zone):
            raise ValueError("it says no year or no month")
        return one

    return read


def _zone(name: str | None, offset: float | None) -> tzinfo | None:
    if offset is not None:
        return timezone(timedelta(seconds=offset))
    try:
        return None if name is None else ZoneInfo(name)
    except (KeyError, OSError) as error:
        raise ValueError(f"{name!r} is no time zone") from error
