"""Readings: how the texts of a column become numbers or dates, in training and in whatever is asked afterwards.

A column has a reading only if plain numbers, ISO 8601 dates and categories do not describe its cells. The schema keeps
it, so that a file to predict and the strings of a request are read as the training file was.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, TypeAlias

from pydantic import Field, TypeAdapter

from murho.model.data.date_readings import DateReading
from murho.model.data.number_readings import NumberReading
from murho.model.json_validation import read_strictly

__all__ = ["Reading", "reading_from_json", "unit_of_reading"]

Reading: TypeAlias = Annotated[NumberReading | DateReading, Field(discriminator="form")]
"""Of the cells of a numeric, or a date column."""


@cache
def _readings() -> TypeAdapter[Reading | None]:
    return TypeAdapter(Reading | None)


def reading_from_json(data: object, where: str) -> Reading | None:
    """Read a reading as JSON data, or None.

    Raises:
        CheckpointError: The data have another form; the message names the field.
    """
    return read_strictly(_readings(), data, where)


def unit_of_reading(reading: Reading | None) -> str | None:
    """The unit that the cells of a column have by their reading."""
    return reading.unit if isinstance(reading, NumberReading) else None
