"""Time zones as they are written behind a time: ``Z``, ``+02:00``, ``UTC``, ``CEST``, ``Europe/Berlin``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

__all__ = ["ZONE_PATTERN", "zone_of"]

ZONE_PATTERN = r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?\s*\[?(?:[A-Za-z]{1,5}|[A-Za-z]+/[A-Za-z_/+-]+)?\]?"
"""What may stand behind a time."""

_OFFSET = re.compile(r"([+-])([0-9]{2})(?::?([0-9]{2}))?")
_HOURS = {
    **dict.fromkeys(("Z", "UTC", "GMT", "WET"), 0),
    **dict.fromkeys(("BST", "WEST", "CET"), 1),
    **dict.fromkeys(("CEST", "EET"), 2),
    **dict.fromkeys(("EEST", "MSK"), 3),
    "JST": 9,
    "EST": -5,
    "EDT": -4,
    "CST": -6,
    "CDT": -5,
    "MST": -7,
    "MDT": -6,
    "PST": -8,
    "PDT": -7,
}
"""Abbreviations and their hours from UTC; those of North America as in RFC 5322."""


@lru_cache(maxsize=512)
def zone_of(text: str) -> tzinfo:
    """The time zone of a text that `ZONE_PATTERN` matches; UTC for an empty text.

    An offset goes before a name, as in ``+02:00[Europe/Berlin]``.

    Raises:
        ValueError: There is no such zone.
    """
    stripped = text.strip()
    if not stripped:
        return UTC
    offset = _OFFSET.match(stripped)
    if offset is not None:
        sign, hours, minutes = offset.groups()
        distance = timedelta(hours=int(hours), minutes=int(minutes or 0))
        return timezone(-distance if sign == "-" else distance)
    name = stripped.strip("[]")
    if name.startswith("Z["):
        return UTC
    if name.upper() in _HOURS:
        return timezone(timedelta(hours=_HOURS[name.upper()]))
    if "/" in name:
        try:
            return _place(name)
        except (ValueError, OSError) as error:
            raise ValueError(f"{name!r} is no time zone") from error
    raise ValueError(f"{name!r} is no time zone")


def _place(name: str) -> tzinfo:
    zone = ZoneInfo(name)
    zone.utcoffset(datetime(2000, 1, 1, tzinfo=UTC))
    return zone
