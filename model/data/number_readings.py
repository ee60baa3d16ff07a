"""Numbers as people write them: ``$3,504.00``, ``1.234,5 €``, ``12 %``, ``(15.00)``, with one decimal mark a column.

What a column leaves open, such as whether ``1,234`` is a thousand or one and a bit, is decided for the column as a
whole (`model.data.reading_inference`), and then holds for every later file and request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias

__all__ = ["MARKS", "DecimalMark", "NumberReading", "Parts", "is_missing_word", "number_parts"]

DecimalMark: TypeAlias = Literal[".", ","]
MARKS: tuple[DecimalMark, DecimalMark] = (".", ",")

_MISSING_WORD = re.compile(
    r"-{1,3}|\u2013|\u2014|\.{1,3}|\?|n\. ?a\.|n\.d\.|n/?a|nan|none|null|unknown|missing|not (?:available|applicable)"
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


class Parts(NamedTuple):
    """A text as a number with a currency or ``%``.

    Attributes:
        values: The number by each decimal mark that fits: not every three digits, or two decimal marks, fit none.
        unit: Currency as written, or ``%``; empty if there is none.
    """

    values: dict[DecimalMark, float]
    unit: str


def number_parts(text: str) -> Parts | None:
    """Take a text apart as a number with a currency or ``%``; None if it is none."""
    found = _WRITTEN.fullmatch(text.strip()) if len(text) <= _LONGEST else None
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
    values = {
        mark: factor * float(re.sub(rf"[^0-9eE+\-{mark}]", "", found["number"]).replace(",", "."))
        for mark in MARKS
        if _FORMS[mark].fullmatch(found["number"])
    }
    return Parts(values, head or tail or "") if values else None


def is_missing_word(text: str) -> bool:
    """Whether a text among numbers or dates stands for a missing cell."""
    return _MISSING_WORD.fullmatch(text.strip()) is not None


@dataclass(frozen=True, slots=True)
class NumberReading:
    """Texts of a column as numbers.

    Attributes:
        decimal: The decimal mark; the other mark, blanks and apostrophes may part groups of three digits.
        unit: Currency, or ``%``, that the cells repeat; None if they have none.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    decimal: DecimalMark = "."
    unit: str | None = None
    form: Literal["number"] = "number"

    def parse(self, text: str) -> float:
        """The number in a cell; NaN for a text that stands for a missing cell. The unit may be left out.

        Raises:
            ValueError: The text is no number, or has another unit.
        """
        if is_missing_word(text):
            return float("nan")
        parts = number_parts(text)
        if parts is None or self.decimal not in parts.values:
            raise ValueError(f"{text!r} is not a number such as {self._example()!r}")
        if parts.unit.lower() not in ("", (self.unit or "").lower()):
            expected = f"the unit {self.unit!r}" if self.unit else "no unit"
            raise ValueError(f"{text!r} has the unit {parts.unit!r} in a column with {expected}")
        return parts.values[self.decimal]

    def _example(self) -> str:
        number = "1,234.5" if self.decimal == "." else "1.234,5"
        return number if self.unit is None else f"{number} {self.unit}"

    def describe(self) -> str:
        """What was recognised, for people."""
        unit = {None: "", "%": "per cent", "s": "seconds"}.get(self.unit, f"currency {self.unit!r}")
        parts = [part for part in (unit, "decimal comma" if self.decimal == "," else "") if part]
        return f"numbers with {' and '.join(parts)}" if parts else "numbers"
