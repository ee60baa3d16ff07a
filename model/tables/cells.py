"""Parsing of single cells: from text and Python values to the canonical number, category or date, and back.

Tables and requests share these functions, so a cell has the same meaning in a file and over HTTP.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np

from murho.model.arrays import Doubles

LONGEST_TEXT = 2**16
"""Bytes in UTF-8 of the text in a cell of a feature: more is no category, number or date."""

MISSING_WORDS = frozenset(
    {"", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "-nan", "NULL", "Null", "null", "None"}
)
"""Texts that mark a missing cell, in files, data frames and requests, unless the user keeps one as a category."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
# No leading zeros: "007" and "01234" are codes, and "7" would be another code.
_PLAIN_NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?")
_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_LAST = 2_932_897 - 2**-30
"""The end of the year 9999, in days, in as many digits as times have."""


def explain_long_text(count: int) -> str:
    """Return what is wrong with a text of more bytes than `LONGEST_TEXT`."""
    return f"the text takes {count} bytes; a cell holds at most {LONGEST_TEXT}"


def parse_number(text: str) -> float:
    """Read a decimal number, such as ``-3.5e2``.

    ``inf``, ``infinity`` and ``nan`` are read too, so that the caller can refuse them with its own message.

    Raises:
        ValueError: The text is no number. Digit groups (``1_000``, ``1,000``) and decimal commas are refused.
    """
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped) is None and _NOT_FINITE.fullmatch(stripped) is None:
        raise ValueError(f"{text!r} is not a number")
    return float(stripped)


def parse_boolean(text: str) -> float:
    """Read ``true`` or ``1`` as 1.0 and ``false`` or ``0`` as 0.0, in any case.

    Raises:
        ValueError: The text is none of these.
    """
    match text.strip().lower():
        case "true" | "1" | "1.0":
            return 1.0
        case "false" | "0" | "0.0":
            return 0.0
    raise ValueError(f"{text!r} is neither true nor false")


def parse_date(text: str) -> float:
    """Read an ISO 8601 date or date-time, such as ``1982-01-01`` or ``1982-01-01T12:30:00Z``.

    Returns:
        Days since 1970-01-01 UTC, fractional. A time without an offset is UTC.

    Raises:
        ValueError: The text has another form, or names a day that the calendar does not have.
    """
    stripped = text.strip().upper()
    if _DATE.fullmatch(stripped) is None:
        raise ValueError(f"{text!r} is not an ISO 8601 date such as 1982-01-01 or 1982-01-01T12:30:00Z")
    try:
        return days_of(datetime.fromisoformat(stripped))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is not a day of the calendar: {error}") from error


def format_date(days: float) -> str:
    """Write days since 1970-01-01 UTC as ISO 8601: a date for a whole day, otherwise a date-time (UTC).

    Days outside the years 1 to 9999 are written as ``"day 4000000"``, counted from 1970-01-01.
    """
    try:
        moment = _EPOCH + timedelta(days=min(days, _LAST) if days < _LAST + 1.0 else days)
    except OverflowError:
        return f"day {days:g}"
    if days == math.floor(days):
        return moment.date().isoformat()
    return moment.replace(tzinfo=None).isoformat() + "Z"


def canonical_category(value: object) -> str:
    """Return the canonical text of a category, the same for all ways to write it.

    Numbers drop trailing zeros: ``4``, ``4.0`` and ``"4.0"`` become ``"4"``, while ``"007"`` stays. Truth values
    become ``"true"`` and ``"false"``, dates ISO 8601. Blanks around a text are dropped.

    Raises:
        ValueError: The value is NaN, infinite, or of a type that a cell can't have.
    """
    match value:
        case str():
            return _canonical_text(value.strip())
        case bool() | np.bool_():
            return "true" if value else "false"
        case int() | np.integer():
            return str(int(value))
        case float() | np.floating() | Decimal():
            if not math.isfinite(value):
                raise ValueError(f"{value} is not a category")
            # repr is the shortest exact text. Decimal writes 1e-07 out in full, as people do in files.
            decimal = value if isinstance(value, Decimal) else Decimal(repr(float(value)))
            return _canonical_text(format(decimal, "f"))
        case datetime():
            return format_date(days_of(value))
        case date():
            return value.isoformat()
    raise ValueError(f"a value of type {type(value).__name__} is not a category")


def as_text(value: object) -> str:
    """Return the canonical text of a category, or any text of what can't be one, such as a duration or NaN."""
    try:
        return canonical_category(value)
    except ValueError:
        return str(value)


def days_of(moment: datetime) -> float:
    """Days since 1970-01-01 UTC, fractional. A moment without a zone is UTC."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (aware - _EPOCH) / _DAY


def without_codes(numbers: Doubles, words: Collection[str], *, days: bool = False) -> Doubles:
    """Numbers or days, ``[B]``, NaN where one is among the words, such as ``-200``, that mean a missing cell."""
    form, parse = (_DATE, parse_date) if days else (_NUMBER, float)
    codes = [parse(word) for word in words if form.fullmatch(word) is not None]
    return np.where(np.isin(numbers, codes), np.nan, numbers) if codes else numbers


def _canonical_text(text: str) -> str:
    lowered = text.lower()
    if lowered in {"true", "false"}:
        return lowered
    number = _PLAIN_NUMBER.fullmatch(text)
    if number is None:
        return text
    sign, whole, fraction = number.groups(default="")
    fraction = fraction.rstrip("0")
    if whole == "0" and not fraction:
        sign = ""
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"
