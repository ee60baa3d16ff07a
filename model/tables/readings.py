"""Readings: how the texts of a column become numbers or dates, in training and in whatever is asked afterwards.

A column has a reading only if plain numbers, ISO 8601 dates and categories do not describe its cells. The schema keeps
it, so that a file to predict and the strings of a request are read as the training file was. What a column leaves open,
such as whether ``1,234`` is a thousand or one and a bit, or whether ``03/04/2020`` is in March, is decided for the
column as a whole (`model.tables.inference`), and then holds for every later file and request.

- Numbers as people write them: ``$3,504.00``, ``1.234,5 €``, ``12 %``, ``(15.00)``, with one decimal mark a column.
- Times: ``16:15:00`` as seconds, or ``16:15`` as minutes.
- Dates in other forms than ISO 8601: ``31/12/2020 14:30``, ``12/31/20``, ``31 Dec 2020``, ``Jul-75``, ``12312020``,
  ``2020-W31``, ``2020 Q3``, ``2020M07``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, tzinfo
from functools import cache, partial
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar, cast
from zoneinfo import ZoneInfo

from pydantic import Field

from murho.model.errors import TableError
from murho.model.json_validation import Stored
from murho.model.tables.cells import MISSING_WORDS, canonical_category, days_of, parse_date

DecimalMark: TypeAlias = Literal[".", ","]
DateOrder: TypeAlias = Literal["month-first", "day-first", "year-first"]

_MISSING_WORD = re.compile(
    r"-{1,3}|\u2013|\u2014|\.{1,3}|[?:]|n\. ?a\.|n\.d\.|n/?a|nan|none|null|unknown|missing|not (?:available|applicable)"
    r"|#(?:n/a|value!|div/0!|ref!|num!)",
    re.IGNORECASE,
)
_SYMBOL = "[$€£¥₹₽₩₺฿₫₪₴₦₱₿¢]"
_MAGNITUDES = {"k": 1e3, "m": 1e6, "mio": 1e6, "mn": 1e6, "million": 1e6, "b": 1e9, "bn": 1e9, "billion": 1e9}
_BLANKS = " '\u2019\u00a0\u202f"
_LONGEST = 64
"""No number with a unit is longer; longer texts are not looked at."""
_CODE = (
    "(?i:AED|ARS|AUD|BGN|BRL|CAD|CHF|CLP|CNY|COP|CZK|DKK|EGP|EUR|GBP|HKD|HUF|IDR|ILS|INR|ISK|JPY|KRW|MXN|MYR|NOK|NZD|PHP"
    "|PLN|RMB|RON|RUB|SAR|SEK|SGD|THB|TRY|TWD|UAH|USD|VND|ZAR|KR|RS|FR)"
)
_CURRENCY = rf"[A-Za-z]{{0,3}}{_SYMBOL}|{_CODE}\.?"
_WRITTEN = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[+\-\u2212])?\s*(?P<head>{_CURRENCY})?\s*(?P<second>[+\-\u2212])?\s*"
    rf"(?P<number>[0-9.,](?:[0-9.,{_BLANKS}]*[0-9.,])?(?:[eE][+-]?[0-9]+)?)\s*"
    rf"(?P<tail>%|{_CURRENCY})?(?P<magnitude>(?i:{'|'.join(_MAGNITUDES)}))?\s*(?P<close>\))?"
)


def _form(mark: str, groups: str) -> re.Pattern[str]:
    """Digits with this decimal mark, plain or in groups of thousands (or lakhs) parted by the other mark or blanks."""
    return re.compile(
        rf"[1-9][0-9]{{0,2}}([{groups}{_BLANKS}])(?:[0-9]{{2,3}}\1)*[0-9]{{3}}(?:{mark}[0-9]*)?"
        rf"|(?:[0-9]+{mark}?[0-9]*|{mark}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    )


_FORMS = {".": _form(r"\.", ","), ",": _form(",", ".")}


_TIME = re.compile(r"([0-9]{1,3}):([0-5][0-9])(?::([0-5][0-9](?:[.,][0-9]+)?))?")


class Parts(NamedTuple):
    """What a text may mean.

    Attributes:
        values: Number, or date in ISO 8601, by each decimal mark, or order of day and month, that fits: ``3,5`` has no
            decimal point, ``31/12/2020`` no month first. The order of ``20201231`` is empty: it leaves nothing open.
        sign: Currency or ``%`` of a number, ``s`` or ``min`` of a time, else empty; of a date what parts its numbers.
    """

    values: dict[str, float | str]
    sign: str


def number_parts(text: str) -> Parts | None:
    """Read a number with a currency or ``%``, or a time, by the decimal mark; return None if a text is neither."""
    if len(text) > _LONGEST:
        return None
    if found := _TIME.fullmatch(text.strip()):
        return _time_parts(*found.groups())
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        return None
    head, tail, magnitude = found["head"], found["tail"], found["magnitude"]
    signs = [sign for sign in (found["sign"], found["second"], found["open"]) if sign]
    if (
        len(signs) > 1
        or bool(found["open"]) != bool(found["close"])
        or (tail or not head if magnitude else head and tail)
    ):
        return None
    factor = _MAGNITUDES[magnitude.lower()] if magnitude else 1.0
    factor = -factor if signs and signs != ["+"] else factor
    values: dict[str, float | str] = {
        mark: factor * float(re.sub(rf"[^0-9eE+\-{mark}]", "", found["number"]).replace(",", "."))
        for mark, form in _FORMS.items()
        if form.fullmatch(found["number"])
    }
    return Parts(values, head or tail or "") if values else None


def _time_parts(hours: str, minutes: str, seconds: str | None) -> Parts | None:
    whole = 60.0 * int(hours) + int(minutes)
    if seconds:
        return Parts(dict.fromkeys(_FORMS, 60.0 * whole + float(seconds.replace(",", "."))), "s")
    return Parts(dict.fromkeys(_FORMS, whole), "min") if int(hours) < 24 else None  # 59:30 has seconds


_DAY = re.compile(r"\s*([0-9]{1,2})([./\-])([0-9]{1,2})\2([0-9]{4}|[0-9]{2})(?![0-9./\-])")
PIVOT = 69
"""Years of two digits below this are in the 2000s, the others in the 1900s, as POSIX has it."""


def date_parts(text: str, pivot: int = PIVOT) -> Parts | None:
    """Return what a text such as ``03/04/2020 14:30`` or ``03042020`` means, by the order; None for any other text."""
    if len(text) > _LONGEST:
        return None
    if found := _DIGITS.fullmatch(text):
        digits, sign = found[1].zfill(8), ""
        first, second, third = digits[:2], digits[2:4], digits[4:]
        orders = {"": (digits[:4], third[:2], third[2:])}
    elif found := _DAY.match(text):
        first, sign, second, third = found.groups()
        orders = {"year-first": (first, second, third)} if len(first) == len(third) else {}
    else:
        return None
    values: dict[str, float | str] = {}
    orders = {"month-first": (third, first, second), "day-first": (third, second, first), **orders}
    for order, parts in orders.items():
        with suppress(ValueError):
            year, month, day = map(int, parts)
            if sign or year in _YEARS:
                values[order] = date(_whole_year(year, pivot), month, day).isoformat()
    return Parts(values, sign) if sign or values else None


_DIGITS = re.compile(r"\s*([0-9]{7,8})(?:\.0*)?\s*")
"""A day written as a number, which may have lost its first zero."""
_YEARS = range(1800, 2200)


def _whole_year(year: int, pivot: int) -> int:
    return year if year > 99 else year + (2000 if year < pivot else 1900)


def is_missing_word(text: str) -> bool:
    """Whether a text among numbers or dates stands for a missing cell."""
    return _MISSING_WORD.fullmatch(text.strip()) is not None


@dataclass(frozen=True, slots=True)
class NumberReading(Stored):
    """Texts of a column as numbers.

    Attributes:
        decimal: The decimal mark; the other mark, blanks and apostrophes may part groups of three digits.
        unit: Currency, or ``%``, that the cells repeat; None if they have none.
    """

    decimal: DecimalMark = "."
    unit: str | None = None
    form: Literal["number"] = "number"

    def parse(self, text: str) -> float:
        """Return the number in a cell; NaN for a text that stands for a missing cell. The unit may be left out.

        Raises:
            ValueError: The text is no number, or has another unit.
        """
        if is_missing_word(text):
            return float("nan")
        parts = number_parts(text)
        if parts is None or self.decimal not in parts.values:
            raise ValueError(f"{text!r} is not a number such as {self._example()!r}")
        if parts.sign.lower() not in ("", (self.unit or "").lower()):
            expected = f"the unit {self.unit!r}" if self.unit else "no unit"
            raise ValueError(f"{text!r} has the unit {parts.sign!r} in a column with {expected}")
        return float(parts.values[self.decimal])

    def _example(self) -> str:
        number = "1,234.5" if self.decimal == "." else "1.234,5"
        return number if self.unit is None else f"{number} {self.unit}"

    def describe(self) -> str:
        """Return what was recognised, for people."""
        if self.unit in ("s", "min"):
            return f"times, in {'seconds' if self.unit == 's' else 'minutes'}"
        unit = {None: "", "%": "per cent"}.get(self.unit, f"currency {self.unit!r}")
        parts = [part for part in (unit, "decimal comma" if self.decimal == "," else "") if part]
        return f"numbers with {' and '.join(parts)}" if parts else "numbers"


_ISO_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?![0-9-])")
_TOLD = re.compile(r"[A-Za-z]{3}|[0-9]{4}")
"""What a date has in any other form: a month's name, or a whole year."""


_PERIOD = re.compile(
    r"(?:(?P<year>(?:1[89]|2[01])[0-9]{2})[ -]?)?(?P<kind>[QTMW]|KW)(?P<number>[0-9]{1,2})"
    r"(?(year)|[ /-](?P<last>(?:1[89]|2[01])[0-9]{2}))",
    re.IGNORECASE,
)


def _first_day(period: re.Match[str]) -> date:
    """Return the first day of a week of ISO 8601, a month or a quarter (T in Romance languages)."""
    year, kind, number = int(period["year"] or period["last"]), period["kind"].upper(), int(period["number"])
    if kind in ("W", "KW"):
        return date.fromisocalendar(year, number, 1)
    return date(year, number if kind == "M" else 3 * number - 2, 1)


_EXAMPLES = {None: "2020-12-31", "day-first": "31/12/2020", "month-first": "12/31/2020", "year-first": "20/12/31"}


@dataclass(frozen=True, slots=True)
class DateReading(Stored):
    """Texts of a column as dates; ISO 8601 is always read too.

    Attributes:
        order: Whether ``03/04/2020`` is the 3rd of April or in March; None for a column of other dates, such as
            ``3 Apr 2020``, which then refuses it.
        pivot: Years of two digits below this are in the 2000s, the others in the 1900s.
    """

    order: DateOrder | None = None
    pivot: int = PIVOT
    form: Literal["date"] = "date"
    unit: ClassVar[None] = None

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
                return days_of(_reader(self.pivot)(iso))
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{text!r} is not a date such as {_EXAMPLES[self.order]}: {error}") from error

    def _in_iso_order(self, text: str) -> str:
        if len(text) > _LONGEST:
            raise ValueError("it is too long")
        if found := _PERIOD.fullmatch(text.strip()):
            return _first_day(found).isoformat()
        parts = date_parts(text, self.pivot)
        if parts is None:
            return text
        answers = {str(value) for order, value in parts.values.items() if order in ("", self.order or order)}
        if not answers:
            raise ValueError("the calendar has no such day")
        if len(answers) > 1:
            raise ValueError("whether its day or its month comes first is not known")
        (day,) = answers
        return _DAY.sub(day, text, count=1) if parts.sign else day

    def describe(self) -> str:
        """Return what was recognised, for people."""
        return "dates" if self.order is None else f"dates, {self.order}"


@cache
def _reader(pivot: int) -> Callable[[str], datetime]:
    """Read a date in any form that has a year and a month; raise a ValueError."""
    from dateutil.parser import parser, parserinfo  # takes a while, and few tables need it

    years = parserinfo()
    years.convertyear = lambda year, century_specified=False: year if century_specified else _whole_year(year, pivot)
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


def _zone(name: str | None, offset: int | None) -> int | tzinfo | None:
    if name is None or offset is not None:
        return offset
    try:
        return ZoneInfo(name)
    except (KeyError, OSError) as error:
        raise ValueError(f"{name!r} is no time zone") from error


Reading: TypeAlias = Annotated[NumberReading | DateReading, Field(discriminator="form")]
"""Of the cells of a numeric, or a date column."""


MARK, ORDER = "--decimal", "--date-order"
"""What the cells of a column may leave open, by the option that decides it."""
ANSWERS = {
    MARK: {".": "a decimal point", ",": "a decimal comma"},
    ORDER: {"month-first": "the month first", "day-first": "the day first", "year-first": "the year first"},
}
"""The answers, the usual one first, each with what is special about a text that proves it."""


@dataclass(frozen=True, slots=True)
class ReadingHints:
    """What the user and the other columns of a table tell about the reading of a column.

    Attributes:
        answers: What decides a question that a column leaves open: the answer, and where it comes from (empty: from
            the user).
        pivot: Years of two digits below this are in the 2000s, the others in the 1900s.
        missing_words: Words for missing cells besides the usual ones, each with its column; None: of all columns.
        kept: Usual words that are categories all the same, likewise.
    """

    answers: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    pivot: int = PIVOT
    missing_words: tuple[tuple[str | None, str], ...] = ()
    kept: tuple[tuple[str | None, str], ...] = ()

    def with_missing(self, name: str, words: Collection[str]) -> ReadingHints:
        """Return the hints with further words for a missing cell of a column."""
        return replace(self, missing_words=(*self.missing_words, *((name, word) for word in words)))

    def missing(self, name: str, *, categories: bool = False) -> frozenset[str]:
        """All words for a missing cell of a column; without those that are kept, if it has categories."""
        return MISSING_WORDS.union(words_for(name, self.missing_words)).difference(
            words_for(name, self.kept) if categories else ()
        )


NO_HINTS = ReadingHints()


def words_for(name: str, given: Collection[tuple[str | None, str]]) -> tuple[str, ...]:
    """Return the words for a column, sorted, among `ReadingHints.missing_words` or `ReadingHints.kept`."""
    return tuple(sorted({canonical_category(word) for column, word in given if column in (None, name)}))


ParsedT = TypeVar("ParsedT")
_LOOKED_AT = 500
"""Distinct cells of a column that tell whether it is worth to look at all of them."""
_NO_SLIP = 0.05
"""Share of the cells from which on an unlikely answer is no slip, but a second convention."""


def parse_texts(texts: list[str], parse: Callable[[str], ParsedT | None]) -> dict[str, ParsedT]:
    """Return what the texts mean that can be parsed; none if none of a few, spread over the column, can.

    Args:
        texts: Different texts.
        parse: Returns None, or raises a ValueError, for other texts.
    """
    for part in (texts[:: max(1, len(texts) // _LOOKED_AT)], texts):
        found = dict[str, ParsedT]()
        for text in part:
            with suppress(ValueError):
                if (meaning := parse(text)) is not None:
                    found[text] = meaning
        if not found:
            break
    return found


def fitting_answers(parts: dict[str, Parts], question: str) -> tuple[list[str], float]:
    """Return the answers that fit the most texts, and the share of the texts that they do not fit."""
    counts = {
        answer: sum(not {answer, ""}.isdisjoint(each.values) for each in parts.values()) for answer in ANSWERS[question]
    }
    most = max(counts.values())
    return [answer for answer, count in counts.items() if count == most], (len(parts) - most) / max(1, len(parts))


def _answer(
    parts: dict[str, Parts], most: int, question: str, name: str, hints: ReadingHints
) -> tuple[str, str] | None:
    """Return the answer of a column, and a note on what was decided without proof (or "").

    None for texts that contradict each other and are less than half of all, ``most``.

    Raises:
        TableError: More texts contradict each other.
    """
    answers, misfits = fitting_answers(parts, question)
    if misfits > _NO_SLIP:
        if 2 * len(parts) < most:
            return None
        best, said = answers[0], ANSWERS[question]
        other = next(text for text, each in parts.items() if {best, ""}.isdisjoint(each.values))
        its = next(iter(parts[other].values))
        one = next(text for text, each in parts.items() if {its, ""}.isdisjoint(each.values))
        raise TableError(
            f"column {name!r}: {one!r} has {said[best]} and {other!r} {said[its]}: write all cells alike, "
            'or declare kind = "categorical" if they are no numbers or dates'
        )
    answer, why = hints.answers.get(question, ("", ""))
    if answer not in answers:
        answer, why = _usual(parts, question, answers)
        why = f", {why}"
    for text, each in parts.items() if why else ():
        readings = {other: each.values[other] for other in answers if other in each.values}
        if answer in readings and len({*readings.values()}) > 1:
            shown = {other: value if isinstance(value, str) else f"{value:.12g}" for other, value in readings.items()}
            read = shown.pop(answer)
            others = "; ".join(f"{question} {other} reads {value}" for other, value in shown.items())
            return answer, f"{text!r} is read as {read}{why}; {others}"
    return answer, ""


def _usual(parts: dict[str, Parts], question: str, answers: list[str]) -> tuple[str, str]:
    """Return the usual one of some answers, and why: of dates that with the fewest in the future.

    Then it is the only one by which all are first days of months; else with points the day comes first.
    """
    if question == ORDER and len(answers) > 1:
        today = date.today().isoformat()
        late = {answer: sum(str(each.values.get(answer)) > today for each in parts.values()) for answer in answers}
        fewest = [answer for answer in answers if late[answer] == min(late.values())]
        if len(fewest) < len(answers):
            return fewest[0], "which leaves the fewest dates in the future"
        first = [a for a in answers if all(str(each.values.get(a)).endswith("-01") for each in parts.values())]
        points = {each.sign for each in parts.values()} == {"."} and "day-first" in answers
        answers = first if len(first) == 1 else ["day-first"] if points else answers
    return answers[0], "as is usual"


def readings_of(texts: list[str], name: str, hints: ReadingHints) -> Iterator[tuple[Reading, str]]:
    """Return the readings that a column of text may have, each with a note on what was decided without proof (or "").

    Raises:
        TableError: Most cells have a form, and prove that the column mixes decimal marks, orders of day and month, or
            numbers with and without ``%``.
    """
    texts = [text for text in texts if not is_missing_word(text)]
    parts = parse_texts(texts, number_parts)
    if parts and 2 * len(parts) >= len(texts) and (found := _answer(parts, len(texts), MARK, name, hints)):
        signs = Counter(each.sign for each in parts.values())
        unit = next((sign for sign, _ in signs.most_common() if sign), None)
        if unit == "%" and signs[""]:
            one, other = (next(text for text, each in parts.items() if each.sign == sign) for sign in ("%", ""))
            raise TableError(f"column {name!r}: {one!r} is per cent and {other!r} is not: write all cells alike")
        first = next(iter(parts))
        note = (
            f"{first!r} is read with a minus, as all cells have brackets" if all("(" in text for text in parts) else ""
        )
        yield NumberReading("," if found[0] == "," else ".", unit), found[1] or note
    parts = parse_texts(texts, partial(date_parts, pivot=hints.pivot))
    if found := _answer(parts, len(texts), ORDER, name, hints):
        open_order = any("" not in each.values for each in parts.values())
        yield DateReading(cast("DateOrder", found[0]) if open_order else None, hints.pivot), found[1]
