"""Numbers as people write them: ``$3,504.00``, ``1.234,5 kg``, ``12 %``, ``(15.00)``, with one decimal mark a column.

What a column leaves open, such as whether ``1,234`` is a thousand or one and a bit, is decided for the column as a
whole (`model.data.reading_inference`), and then holds for every later file and request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, cast

from murho.model.json_validation import expect_fields, expect_text, wrong

__all__ = ["MISSING_WORDS", "DecimalMark", "NumberReading", "Parts", "is_missing_word", "number_parts", "unit_key"]

DecimalMark: TypeAlias = Literal[".", ","]

MISSING_WORDS = frozenset(
    {
        "-",
        "--",
        "---",
        "\u2013",
        "\u2014",
        ".",
        "..",
        "...",
        "n.a.",
        "n. a.",
        "n.d.",
        "na",
        "n/a",
        "nan",
        "none",
        "null",
    }
    | {"unknown", "missing", "not available", "not applicable", "#n/a", "#value!", "#div/0!", "#ref!", "#num!", "?"}
)
"""Texts, in lower case, that stand for a missing cell among numbers, dates and durations."""

_SYMBOLS = "$€£¥₹₽₩₺฿₫₪₴₦₱₿¢"
_CURRENCIES = frozenset(
    {"AED", "ARS", "AUD", "BGN", "BRL", "CAD", "CHF", "CLP", "CNY", "COP", "CZK", "DKK", "EGP", "EUR", "GBP", "HKD"}
    | {"HUF", "IDR", "ILS", "INR", "ISK", "JPY", "KRW", "MXN", "MYR", "NOK", "NZD", "PHP", "PLN", "RMB", "RON", "RUB"}
    | {"SAR", "SEK", "SGD", "THB", "TRY", "TWD", "UAH", "USD", "VND", "ZAR", "KR", "RS", "FR"}
)
_DIGITS_AND_MARKS = r"(?:[0-9](?:[0-9.,'\u2019\u00a0\u202f ]*[0-9])?[.,]?|[.,][0-9]+)(?:[eE][+-]?[0-9]+(?![0-9.,]))?"
_LETTER = r"[^\W\d_]"
# A unit may have a 2 or 3 after a letter (m2), and blanks within (sq ft), but no other digits.
_UNIT = rf"(?:[%‰°²³{_SYMBOLS}]|{_LETTER})(?:{_LETTER}|[./%‰°²³·\- {_SYMBOLS}]|(?<={_LETTER})[23](?!\d)){{0,23}}"
_HEAD = rf"(?:[A-Za-z]{{0,3}}[{_SYMBOLS}]|[A-Za-z]{{2,3}}\.?)"
_WRITTEN = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[+\-\u2212])?\s*(?P<head>{_HEAD})?\s*(?P<second>[+\-\u2212])?\s*"
    rf"(?P<number>{_DIGITS_AND_MARKS})[\s\u00a0\u202f]*(?P<tail>{_UNIT})?\s*(?P<close>\))?"
)
_MAGNITUDES = {"k": 1e3, "m": 1e6, "mio": 1e6, "mn": 1e6, "million": 1e6, "b": 1e9, "bn": 1e9, "billion": 1e9}
_LONGEST = 64
"""No number with a unit is longer; longer texts are not looked at."""
_GROUPED = {
    ".": re.compile(
        r"[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:,[0-9]{2})+,[0-9]{3}|([ '\u2019\u00a0\u202f])[0-9]{3}(?:\1[0-9]{3})*)"
        r"(?:\.[0-9]*)?"
    ),
    ",": re.compile(r"[1-9][0-9]{0,2}(?:(?:\.[0-9]{3})+|([ '\u2019\u00a0\u202f])[0-9]{3}(?:\1[0-9]{3})*)(?:,[0-9]*)?"),
}
_PLAIN = re.compile(r"(?:[0-9]+[.,]?[0-9]*|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?")
_MARKS = re.compile(r"[ '\u2019\u00a0\u202f]")


class Parts(NamedTuple):
    """A text as a number with a unit.

    Attributes:
        negative: Whether there is a minus sign, or brackets as accountants use them.
        number: Digits with their marks, such as ``1,234.50``.
        unit: Currency or unit as written; empty if there is none.
        magnitude: Factor from a letter after an amount of money, as in ``$1.5M``.
    """

    negative: bool
    number: str
    unit: str
    magnitude: float

    def value(self, decimal: DecimalMark) -> float:
        """The number, with a decimal point or a decimal comma.

        Raises:
            ValueError: The marks do not fit: not every three digits, or two decimal marks.
        """
        text, groups = self.number, "," if decimal == "." else "."
        if _GROUPED[decimal].fullmatch(text):
            text = _MARKS.sub("", text.replace(groups, ""))
        elif groups in text or _PLAIN.fullmatch(text) is None:
            raise ValueError(f"{self.number!r} is no number with a decimal {_NAMES[decimal]}")
        number = float(text.replace(",", ".")) * self.magnitude
        return -number if self.negative else number


_NAMES = {".": "point", ",": "comma"}


def number_parts(text: str) -> Parts | None:
    """Take a text apart as a number with a currency or a unit; None if it is none."""
    if len(text) > _LONGEST:
        return None
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        return None
    head, tail = found["head"] or "", (found["tail"] or "").strip()
    signs = [sign for sign in (found["sign"], found["second"]) if sign]
    bracketed = found["open"] is not None
    if bracketed != (found["close"] is not None) or len(signs) + bracketed > 1:
        return None
    magnitude = 1.0
    if head:
        if not _is_currency(head):
            return None
        if tail and _is_currency(tail):
            return None
        if tail:
            magnitude = _MAGNITUDES.get(tail.casefold().rstrip("."), 0.0)
            if not magnitude:
                return None
    return Parts(bracketed or ("+" not in signs and bool(signs)), found["number"], head or tail, magnitude)


def _is_currency(text: str) -> bool:
    return text[-1] in _SYMBOLS or text.rstrip(".").upper() in _CURRENCIES


@lru_cache(maxsize=1024)
def unit_key(unit: str) -> str:
    """What the ways to write a unit have in common: ``lb``, ``lbs`` and ``Lb.`` are one."""
    key = " ".join(unit.casefold().split()).rstrip(".")
    return key.removesuffix("s") if len(key) > 1 else key


def is_missing_word(text: str) -> bool:
    """Whether a text among numbers, dates or durations stands for a missing cell."""
    return text.strip().lower() in MISSING_WORDS


@dataclass(frozen=True, slots=True)
class NumberReading:
    """Texts of a column as numbers.

    Attributes:
        decimal: The decimal mark; the other mark, blanks and apostrophes may part groups of three digits.
        unit: Currency or unit that the cells repeat; None if they have none.
    """

    form: ClassVar[str] = "number"

    decimal: DecimalMark = "."
    unit: str | None = None

    def parse(self, text: str) -> float:
        """The number in a cell; NaN for a text that stands for a missing cell. The unit may be left out, except ``%``.

        Raises:
            ValueError: The text is no number, or has another unit.
        """
        if is_missing_word(text):
            return float("nan")
        parts = number_parts(text)
        if parts is None:
            raise ValueError(f"{text!r} is not a number such as {self.example()!r}")
        if parts.unit and unit_key(parts.unit) != unit_key(self.unit or ""):
            expected = f"the unit {self.unit!r}" if self.unit else "no unit"
            raise ValueError(f"{text!r} has the unit {parts.unit!r} in a column with {expected}")
        try:
            return parts.value(self.decimal)
        except ValueError:
            raise ValueError(f"{text!r} is not a number such as {self.example()!r}") from None

    def example(self) -> str:
        """A cell as this reading expects it."""
        number = "1,234.5" if self.decimal == "." else "1.234,5"
        if self.unit is None:
            return number
        return f"{self.unit}{number}" if self.unit[-1] in _SYMBOLS else f"{number} {self.unit}"

    def describe(self) -> str:
        """What was recognised, for people."""
        parts = []
        if self.unit is not None:
            what = "per cent" if self.unit == "%" else "currency" if _is_currency(self.unit) else "unit"
            parts.append(what if what == "per cent" else f"{what} {self.unit!r}")
        if self.decimal == ",":
            parts.append("decimal comma")
        return f"numbers with {' and '.join(parts)}" if parts else "numbers"

    def to_json(self) -> dict[str, Any]:
        """Return the reading as JSON data."""
        return {"form": self.form, "decimal": self.decimal, "unit": self.unit}

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """Read what `to_json` returned; raises a CheckpointError that names the field."""
        fields = expect_fields(data, where, ("form", "decimal", "unit"))
        if fields["decimal"] not in (".", ","):
            raise wrong(f"{where}.decimal", "'.' or ','", fields["decimal"])
        unit = None if fields["unit"] is None else expect_text(fields["unit"], f"{where}.unit")
        return cls(cast("DecimalMark", fields["decimal"]), unit)
