"""Dates and numbers as people write them."""

import math
from contextlib import suppress
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.json_validation import read_strictly
from murho.model.tables.cells import parse_date
from murho.model.tables.readings import DateReading, DecimalMark, NumberReading, Reading, number_parts


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("31/12/2020", "2020-12-31"),
        ("31.12.20", "2020-12-31"),
        ("1-Jan-70", "1970-01-01"),
        ("2020-12-31", "2020-12-31"),
        ("2020-12", "2020-12-01"),
        ("31st December 2020", "2020-12-31"),
        ("31/12/2020 2:30 PM", "2020-12-31T14:30:00Z"),
        ("Mon, 05 Oct 2020 10:00:00 GMT", "2020-10-05T10:00:00Z"),
        ("2020/12/31 10:00:00 +02:00", "2020-12-31T08:00:00Z"),
        ("Jul-75", "1975-07-01"),
        ("20201231", "2020-12-31"),
        ("31/12/2020 10:00 EST", "2020-12-31T15:00:00Z"),
    ],
)
def test_dates_are_read_as_people_write_them(text: str, iso: str) -> None:
    assert DateReading("day-first").parse(text) == parse_date(iso)


@pytest.mark.parametrize(
    "text", [*("31/13/2020", "30/02/2020", "soon", "31/12/2020 10:00 XYZ", "2020", "1 May", "2020-12-31" + " " * 100)]
)
def test_what_is_no_date_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is not a date such as 31/12/2020"):
        DateReading("day-first").parse(text)


def test_a_column_of_other_dates_refuses_what_is_open() -> None:
    reading = DateReading()
    assert reading.parse("3 Apr 2020") == parse_date("2020-04-03")
    assert read_strictly(Reading, asdict(reading), "reading") == reading
    with pytest.raises(ValueError, match="whether its day or its month comes first is not known"):
        reading.parse("03/04/2020")


@given(st.one_of(st.text(max_size=64), st.from_regex(r"[0-9]{1,4}[-/. T:]?[a-zA-Z0-9+\-/:. ]{0,20}", fullmatch=True)))
def test_any_text_is_a_date_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert not math.isinf(DateReading("day-first").parse(text))


@pytest.mark.parametrize(
    ("text", "decimal", "unit", "value"),
    [
        ("$3,504.00", ".", "$", 3504.0),
        ("$-5", ".", "$", -5.0),
        ("($1,234.50)", ".", "$", -1234.5),
        ("\u22125 \u20ac", ".", "\u20ac", -5.0),
        ("EUR 3.504,00", ",", "EUR", 3504.0),
        ("1 234,5 \u20ac", ",", "\u20ac", 1234.5),
        ("1\u202f234,5", ",", None, 1234.5),
        ("1,23,456", ".", None, 123456.0),
        ("$1.5M", ".", "$", 1.5e6),
        ("1e3 usd", ".", "USD", 1000.0),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, decimal: DecimalMark, unit: str | None, value: float) -> None:
    assert NumberReading(decimal, unit).parse(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["5 kg", "5M", "1.2.3", "$", "1,23 $ 4", "(5", "--5", "", "x" * 100])
def test_other_texts_are_no_numbers(text: str) -> None:
    assert number_parts(text) is None


@pytest.mark.parametrize("text", ["-", "#DIV/0!", " . "])
def test_words_for_a_missing_cell_are_missing_in_a_column_of_numbers(text: str) -> None:
    assert math.isnan(NumberReading(".", "$").parse(text))
    assert math.isnan(DateReading().parse(text))


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
    assert read_strictly(Reading, asdict(reading), "reading") == reading
