from __future__ import annotations

import math
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.tables.readings import DecimalMark, NumberReading, number_parts, reading_from_json


@pytest.mark.parametrize(
    ("text", "decimal", "unit", "value"),
    [
        ("$3,504.00", ".", "$", 3504.0),
        ("-$5", ".", "$", -5.0),
        ("$-5", ".", "$", -5.0),
        ("($1,234.50)", ".", "$", -1234.5),
        ("\u22125 \u20ac", ".", "\u20ac", -5.0),
        ("EUR 3.504,00", ",", "EUR", 3504.0),
        ("1 234,5 \u20ac", ",", "\u20ac", 1234.5),
        ("1\u202f234,5", ",", None, 1234.5),
        ("1'234.5 CHF", ".", "CHF", 1234.5),
        ("1,23,456", ".", None, 123456.0),
        ("$1.5M", ".", "$", 1.5e6),
        ("12.0%", ".", "%", 12.0),
        ("3504", ".", "$", 3504.0),
        ("1e3 usd", ".", "USD", 1000.0),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, decimal: DecimalMark, unit: str | None, value: float) -> None:
    assert NumberReading(decimal, unit).parse(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        "5 kg",
        "5M",
        "5 ft 3 in",
        "3-4",
        "1.2.3",
        "A1",
        "3 x 4",
        "<5",
        "10+ years",
        "$",
        "1,23 $ 4",
        "(5",
        "--5",
        "",
        "x" * 100,
    ],
)
def test_other_texts_are_no_numbers(text: str) -> None:
    assert number_parts(text) is None


@pytest.mark.parametrize("text", ["-", "n/a", "Unknown", "#DIV/0!", " . "])
def test_words_for_a_missing_cell_are_missing(text: str) -> None:
    assert math.isnan(NumberReading(".", "$").parse(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5 \u20ac", "has the unit '\u20ac' in a column with the unit 'USD'"),
        ("ten", "is not a number such as '1,234.5 USD'"),
    ],
)
def test_what_does_not_fit_is_said(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NumberReading(".", "USD").parse(text)


@given(st.floats(-1e9, 1e9), st.sampled_from([".", ","]), st.sampled_from([None, "EUR", "$", "%"]))
def test_a_grouped_number_is_read_back(value: float, decimal: DecimalMark, unit: str | None) -> None:
    text = f"{value:,.4f}"
    if decimal == ",":
        text = text.translate(str.maketrans(",.", ".,"))
    reading = NumberReading(decimal, unit)
    assert reading.parse(f"{text} {unit}" if unit and unit != "$" else text) == round(value, 4)
    assert reading_from_json(asdict(reading), "reading") == reading
