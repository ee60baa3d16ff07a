"""Readings: how the texts of a column become numbers or dates, in training and in whatever is asked afterwards.

A column has a reading only if plain numbers, ISO 8601 dates and categories do not describe its cells. The schema keeps
it, so that a file to predict and the strings of a request are read as the training file was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from murho.model.data.date_readings import DateReading
from murho.model.data.number_readings import NumberReading
from murho.model.json_validation import wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Reading", "reading_from_json", "unit_of_reading"]

Reading: TypeAlias = NumberReading | DateReading
"""Of the cells of a numeric, or a date column."""

_FORMS: Mapping[str, type[Reading]] = {reading.form: reading for reading in (NumberReading, DateReading)}


def reading_from_json(data: object, where: str) -> Reading | None:
    """Read what a reading's ``to_json`` returned, or None.

    Raises:
        CheckpointError: The data have another form; the message names the field.
    """
    if data is None:
        return None
    form = data.get("form") if isinstance(data, dict) else data
    if not isinstance(form, str) or form not in _FORMS:
        raise wrong(where, f"an object with a form of {', '.join(_FORMS)}", data)
    return _FORMS[form].from_json(data, where)


def unit_of_reading(reading: Reading | None) -> str | None:
    """The unit that the cells of a column have by their reading."""
    return reading.unit if isinstance(reading, NumberReading) else None
