"""Inference of a whole column's kind and of how its cells are written, or of the reason why it is no feature."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from murho.model.data.cells import parse_date, parse_number
from murho.model.data.columns import (
    CellType,
    Distinct,
    canonical_cells,
    cell_type,
    distinct,
    holds_durations,
    is_missing,
    plain,
)
from murho.model.data.date_readings import DateReading
from murho.model.data.number_readings import NumberReading, is_missing_word
from murho.model.data.reading_inference import NO_HINTS, text_readings
from murho.model.data.schema import FeatureKind
from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from murho.model.data.reading_inference import ReadingHints
    from murho.model.data.readings import Reading

__all__ = ["Inference", "infer_column"]

_MOSTLY = 0.8
"""A text column with at least this share of numbers (or dates) is refused: its other cells are likely mistakes."""
_ALMOST_ALL = 0.95
"""The same for readings: other texts among ``$3`` are rather categories than mistakes."""
_MOST_WORDS = 0.8
"""Share of the cells of a column with a reading that may be words for a missing cell."""

_LOOKED_AT = 500
"""Distinct cells of a column that tell whether it is worth to look at all of them."""
_IDENTIFIER_VALUES = 20
"""A column with this many distinct values or fewer is never taken for an identifier."""
_NAMES_OF_IDENTIFIERS = re.compile(
    r"(?:^|[_\s.-])(?:id|ids|uid|uuid|guid|key|index|rownum|row_number|rowid|rownames)$|^unnamed: ?[0-9]+$"
    r"|^__index_level_|(?-i:(?<=[a-z])I[dD]$)",
    re.IGNORECASE,
)
_WITH_UNIT = re.compile(r"[0-9][0-9.,]*\s*[^\W\d_]+[^\d\s]*")
_WORDS_OF_FREE_TEXT = 5
"""Texts with so many words, on average, are sentences."""


@dataclass(frozen=True, slots=True)
class Inference:
    """The inferred properties of a column.

    Attributes:
        kind: Kind of the cells.
        missing: Whether any cell is missing.
        left_out: Reason why the column is no feature; None for a feature.
        reading: How the cells are written, if not as plain numbers, ISO 8601 dates or categories.
        note: What was decided about the reading without proof; empty if nothing was.
    """

    kind: FeatureKind
    missing: bool
    left_out: str | None
    reading: Reading | None = None
    note: str = ""


def infer_column(
    column: pa.ChunkedArray, name: str, declared: FeatureKind | None = None, hints: ReadingHints = NO_HINTS
) -> Inference:
    """Infer the kind of a column, and whether it is a feature.

    Args:
        column: The whole column ``[N]``.
        name: The column's name, for messages.
        declared: Kind given by the user. It replaces the inferred kind, and the column is not tested for identifiers.
        hints: What decides where the cells leave open how they are to be read.

    Returns:
        The inferred properties.

    Raises:
        TableError: A cell doesn't fit the kind, most cells but not all are numbers or dates, or a number is infinite;
            the message names column and row (from 1).
    """
    cells = plain(column, name)
    stored = cell_type(cells)
    if stored is CellType.EMPTY:
        return Inference(declared or FeatureKind.CATEGORICAL, missing=True, left_out="every cell is missing")
    if stored is CellType.OTHER:
        kind = declared or FeatureKind.CATEGORICAL
        return Inference(kind, missing=False, left_out=f"cells of the type {column.type} can't be used")
    kind, reading, note = _kind(cells, stored, name, declared, hints)
    if holds_durations(column.type) and kind is FeatureKind.NUMERIC:
        reading = NumberReading(unit="s")
    values = canonical_cells(cells, kind, name, reading)
    absent = is_missing(values)
    present = values[~absent]
    left_out = None
    if present.size == 0:  # texts such as "nan" are missing too
        left_out = "every cell is missing"
    elif not absent.any() and bool(np.all(present == present[0])):
        left_out = "every cell is the same"
    elif declared is None and reading is None:
        left_out = _identifies(present, kind, name, complete=not absent.any())
    return Inference(kind, bool(absent.any()), left_out, reading, note)


def _kind(
    cells: pa.ChunkedArray, stored: CellType, name: str, declared: FeatureKind | None, hints: ReadingHints
) -> tuple[FeatureKind, Reading | None, str]:
    """Kind, reading and the note on the reading."""
    if stored is CellType.BOOLEAN or stored is CellType.DATE:
        return declared or (FeatureKind.BOOLEAN if stored is CellType.BOOLEAN else FeatureKind.DATE), None, ""
    if declared in (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN):
        return declared, None, ""
    if stored is CellType.TEXT:
        try:
            pc.cast(cells, pa.float64(), safe=False)
        except pa.ArrowInvalid:
            return _text_kind(distinct(cells), name, declared, hints)
        if declared is FeatureKind.DATE:  # such as 20201231
            return _text_kind(distinct(cells), name, declared, hints)
        if hints.decimal == ",":
            # "1.234" in a table with decimal commas; a column with "12.5" has decimal points all the same.
            values = distinct(cells)
            reading, note = next(text_readings(values, name, hints))
            if reading == NumberReading(",") and any("." in value for value in values.values):
                return FeatureKind.NUMERIC, reading, note
    return declared or FeatureKind.NUMERIC, None, ""


def _text_kind(
    values: Distinct, name: str, declared: FeatureKind | None, hints: ReadingHints
) -> tuple[FeatureKind, Reading | None, str]:
    if declared is None and {value.lower() for value in values.values} <= {"true", "false"}:
        return FeatureKind.BOOLEAN, None, ""
    counts = values.counts()
    words = int(counts[np.array([is_missing_word(value) for value in values.values])].sum())
    best: tuple[float, int, str, Reading | None] = (0.0, 0, "", None)
    for kind, reading, parse, what, mostly, note in _forms(values, name, hints):
        if declared not in (None, kind):
            continue
        fitting = _fitting(values, parse)
        if fitting.all() and (reading is None or words <= _MOST_WORDS * int(counts.sum())):
            missing = f"{words} cells hold a word or sign for a missing value" if reading and words else ""
            return kind, reading, "; ".join(filter(None, (note, missing)))
        share = float(counts[fitting].sum() / counts.sum())
        if share > best[0] and (declared is not None or mostly <= share < 1.0):
            best = (share, int(np.argmin(fitting)), what, reading)
    if declared is not None:
        # The first cell that does not fit will be named, as the form that most cells have expects it.
        return declared, best[3], ""
    share, misfit, what, _ = best
    if share:
        raise TableError(
            f"column {name!r}, row {values.first_row(misfit)}: {values.values[misfit]!r} among {what} "
            f"({share:.0%} of the cells are {what}): correct the cell, leave it empty if the value is "
            'missing, or declare kind = "categorical" if it is meant',
            row=values.first_row(misfit),
        )
    return FeatureKind.CATEGORICAL, None, ""


def _forms(
    values: Distinct, name: str, hints: ReadingHints
) -> Iterator[tuple[FeatureKind, Reading | None, Callable[[str], float], str, float, str]]:
    """What the texts may be: kind, reading, parser, name, share from which on a misfit is an error, and note."""
    yield FeatureKind.NUMERIC, None, parse_number, "numbers", _MOSTLY, ""
    yield FeatureKind.DATE, None, parse_date, "dates", _MOSTLY, ""
    for reading, note in text_readings(values, name, hints):
        kind = FeatureKind.DATE if isinstance(reading, DateReading) else FeatureKind.NUMERIC
        yield kind, reading, reading.parse, reading.describe(), _ALMOST_ALL, note


def _fitting(values: Distinct, parse: Callable[[str], float]) -> npt.NDArray[np.bool_]:
    """Which of the distinct values can be parsed; none of them if none of a few can."""
    if not any(_parses(parse, value) for value in values.values[:: max(1, len(values.values) // _LOOKED_AT)]):
        return np.zeros(len(values.values), dtype=bool)
    return np.array([_parses(parse, value) for value in values.values], dtype=bool)


def _parses(parse: Callable[[str], float], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _identifies(present: npt.NDArray[Any], kind: FeatureKind, name: str, *, complete: bool) -> str | None:
    """Why the present cells only identify their rows: mostly distinct texts, or integers that number them."""
    count = present.size
    if kind is FeatureKind.CATEGORICAL:
        different = len(set(present.tolist()))
        if different <= _IDENTIFIER_VALUES or different <= count / 2:
            return None
        texts = f"{different} of its {count} texts are different"
        if sum(len(text.split()) for text in present.tolist()) >= _WORDS_OF_FREE_TEXT * count:
            return f"it is free text, which is not read: {texts}"
        if 2 * sum(_WITH_UNIT.fullmatch(text) is not None for text in present.tolist()) > count:
            return f"it holds numbers with a unit, such as {present[0]!r}: write the numbers alone to use it"
        return f"it identifies rows: {texts}"
    if kind is not FeatureKind.NUMERIC or count <= _IDENTIFIER_VALUES:
        return None
    first, last = present.min(), present.max()
    numbers = last - first == count - 1 and first in (0.0, 1.0)
    named = _NAMES_OF_IDENTIFIERS.search(name) is not None and bool(np.all(present == np.floor(present)))
    if not ((numbers and complete) or named):
        return None
    # Sorting comes last, as few columns pass the cheap tests.
    ordered = np.sort(present)
    if numbers and complete and bool(np.array_equal(ordered, first + np.arange(count))):
        return f"it identifies rows: it numbers them from {first:.0f}"
    if named and bool(np.all(np.diff(ordered) > 0)):
        return "it identifies rows: its name says so, and each has another whole number"
    return None
