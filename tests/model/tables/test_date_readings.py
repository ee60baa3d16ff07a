from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.tables.cells import format_date, parse_date
from murho.model.tables.readings import DateOrder, DateReading, reading_from_json


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("31/12/2020", "2020-12-31"),
        ("3.4.2020", "2020-04-03"),
        ("31.12.20", "2020-12-31"),
        ("1-Jan-70", "1970-01-01"),
        ("2020-12-31", "2020-12-31"),
        ("2020/12/31", "2020-12-31"),
        ("2020-12", "2020-12-01"),
        ("Dec 31, 2020", "2020-12-31"),
        ("31st December 2020", "2020-12-31"),
        ("Jan 2020", "2020-01-01"),
        ("31/12/2020 2:30 PM", "2020-12-31T14:30:00Z"),
        ("Mon, 05 Oct 2020 10:00:00 GMT", "2020-10-05T10:00:00Z"),
        ("2020-12-31 10:00:00 UTC", "2020-12-31T10:00:00Z"),
        ("2020/12/31 10:00:00 +02:00", "2020-12-31T08:00:00Z"),
        ("Jul-75", "1975-07-01"),
        ("20201231", "2020-12-31"),
        ("31/12/2020 10:00 EST", "2020-12-31T15:00:00Z"),
    ],
)
def test_dates_are_read_as_people_write_them(text: str, iso: str) -> None:
    assert DateReading("day-first").parse(text) == parse_date(iso)


def test_the_order_decides_what_is_open() -> None:
    assert DateReading("day-first").parse("03/04/2020") == parse_date("2020-04-03")
    assert DateReading("month-first").parse("03/04/2020") == parse_date("2020-03-04")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "31/13/2020",
            "05/13/2020",
            "30/02/2020",
            "soon",
            "31/12/2020 25:00",
            "31/12/2020 10:00 XYZ",
            "1/2/3",
            "2020",
        ),
        *("May", "Mon 2020", "12:30", "1 May", "\x00", "2020-12-31" + " " * 100),
    ],
)
def test_what_is_no_date_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is not a date such as 31/12/2020"):
        DateReading("day-first").parse(text)


def test_a_column_of_other_dates_refuses_what_is_open() -> None:
    reading = DateReading()
    assert reading.parse("3 Apr 2020") == parse_date("2020-04-03")
    assert reading_from_json(asdict(reading), "reading") == reading
    with pytest.raises(ValueError, match="whether its day or its month comes first is not known"):
        reading.parse("03/04/2020")


def test_words_for_a_missing_cell_are_missing() -> None:
    assert math.isnan(DateReading().parse("unknown"))
    assert math.isnan(DateReading("day-first").parse("-"))


@given(st.one_of(st.text(max_size=64), st.from_regex(r"[0-9]{1,4}[-/. T:]?[a-zA-Z0-9+\-/:. ]{0,20}", fullmatch=True)))
def test_any_text_is_a_date_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert not math.isinf(DateReading("day-first").parse(text))


@given(st.dates(min_value=datetime(1970, 1, 1, tzinfo=UTC).date()), st.sampled_from(["day-first", "month-first"]))
def test_a_written_date_is_read_back(day: object, order: DateOrder) -> None:
    reading = DateReading(order)
    form = "%d/%m/%Y" if order == "day-first" else "%m/%d/%Y"
    assert format_date(reading.parse(day.strftime(form).zfill(10))) == str(day)  # type: ignore[attr-defined]
    assert reading_from_json(asdict(reading), "reading") == reading
