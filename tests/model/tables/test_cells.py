from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.tables.cells import canonical_category, format_date, parse_date, parse_number


@pytest.mark.parametrize(
    ("value", "category"),
    [
        ("4.0", "4"),
        (4, "4"),
        (Decimal("4.00"), "4"),
        (-0.0, "0"),
        ("-2.50", "-2.5"),
        (1e-7, "0.0000001"),
        ("9007199254740993", "9007199254740993"),  # no float64 has this value
        ("007", "007"),
        ("  USA ", "USA"),
        (np.False_, "false"),
        ("TRUE", "true"),
        (date(1982, 1, 1), "1982-01-01"),
        (datetime(1982, 1, 1, 12, tzinfo=UTC), "1982-01-01T12:00:00Z"),
    ],
)
def test_a_category_has_one_text_however_it_is_written(value: object, category: str) -> None:
    assert canonical_category(value) == category


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, [1], b"x"])
def test_what_is_no_cell_is_no_category(value: object) -> None:
    with pytest.raises(ValueError, match="not a category"):
        canonical_category(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_category_of_a_number_keeps_its_value(value: float) -> None:
    assert float(canonical_category(value)) == value


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("1970-01-01", 0.0),
        ("1982-01-01", 4383.0),  # 12 years with 3 leap days
        (" 1970-01-01 06:00:00.000", 0.25),
        ("1970-01-01t12:00:00z", 0.5),
        ("1970-01-01T00:00:00-06:00", 0.25),
    ],
)
def test_dates_are_days_since_1970_utc(text: str, days: float) -> None:
    assert parse_date(text) == days


@pytest.mark.parametrize(
    "text", ["", "1970-02-30", "1970-01-01T25:00", "x", "\u0661970-01-01", "0000-12-31T23:00:00-05:00"]
)
def test_what_is_no_iso_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"ISO 8601|not a day of the calendar"):
        parse_date(text)


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])))
def test_a_date_that_is_written_is_read_back_to_the_microsecond(moment: datetime) -> None:
    try:
        text = format_date(parse_date(moment.isoformat()))
    except ValueError:  # beyond the years 1 to 9999 in UTC
        return
    # Half a microsecond is what float64 days keep in the year 9999.
    assert abs(parse_date(text) - parse_date(moment.isoformat())) * 86_400e6 < 100


def test_dates_beyond_the_calendar_are_still_written() -> None:
    assert format_date(4_000_000.0) == "day 4e+06"


@pytest.mark.parametrize(
    ("text", "number"), [("3", 3.0), (" +3.5e2 ", 350.0), (".5", 0.5), ("1.", 1.0), ("-Infinity", -np.inf)]
)
def test_numbers_are_read(text: str, number: float) -> None:
    assert parse_number(text) == number


@pytest.mark.parametrize("text", ["", "1_000", "1,5", "0x10", "1e", "٣", "one", "1 2", "--1"])
def test_what_python_or_people_may_take_for_a_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        parse_number(text)
