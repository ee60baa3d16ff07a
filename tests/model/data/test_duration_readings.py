from __future__ import annotations

import math

import pytest

from murho.model.data.duration_readings import DurationReading, TimeUnit
from murho.model.data.readings import reading_from_json


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1:02:03", "s", 3723.0),
        ("12:30", "s", 750.0),
        ("1:23.45", "s", 83.45),
        ("12:30", "min", 750.0),
        ("2:30 PM", "min", 870.0),
        ("12:05 am", "min", 5.0),
        ("2 days 03:04:05", "s", 183_845.0),
        ("0 days 00:00:01.500000", "s", 1.5),
        ("1 h 30 min", "s", 5400.0),
        ("1h30m", "min", 90.0),
        ("PT1H30M", "s", 5400.0),
        ("P1DT1S", "s", 86_401.0),
        ("-0:30", "s", -30.0),
    ],
)
def test_durations_are_read(text: str, unit: TimeUnit, value: float) -> None:
    assert DurationReading(unit).parse(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["4:99", "soon", "13:00 pm", "P", "5 parsecs", "1:2", ""])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as"):
        DurationReading("s").parse(text)


def test_the_reading_is_stored_and_words_for_missing_cells_are_missing() -> None:
    for reading in (DurationReading("s"), DurationReading("min")):
        assert reading_from_json(reading.to_json(), "reading") == reading
        assert math.isnan(reading.parse("n/a"))
