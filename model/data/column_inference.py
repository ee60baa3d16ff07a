"""Inference of a whole column's kind and of how its cells are written, or of the reason why it is no feature."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from murho.model.data.arrow_values import floats
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
from murho.model.data.counted_dates import counted_dates
from murho.model.data.date_readings import CountedDateReading, DateReading
from murho.model.data.duration_readings import DurationReading
from murho.model.data.number_readings import NumberReading, is_missing_word
from murho.model.data.reading_inference import NO_HINTS, text_readings
from murho.model.data.schema import FeatureKind
from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.model.data.reading_inference import ReadingHints
    from murho.model.data.readings import Reading

__all__ = ["Inference", "infer_column"]

_MOSTLY = 0.8
"""A text column with at least this share of numbers (or dates) is refused: its other cells are likely mistakes."""
_ALMOST_ALL = 0.95
"""The same for readings: ``10+ years`` among ``3 years`` is rather a category than a mistake."""
_LEAST_READ = 0.2
"""Of the cells of a column with a reading, so many are not words for a missing cell."""

_LOOKED_AT = 500
"""Distinct cells of a column that tell whether it is worth to look at all of them."""
_IDENTIFIER_VALUES = 20
"""A column with this many distinct values or fewer is never taken for an identifier."""
_NAMES_OF_IDENTIFIERS = re.compile(
    r"(?:^|[_\s.-])(?:id|ids|uid|uuid|guid|key|index|rownum|row_number|rowid|rownames)$|^unnamed: ?[0-9]+$"
    r"|^__index_level_|(?-i:(?<=[a-z])I[dD]$)",
    re.IGNORECASE,
)
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
        reading = DurationReading("s")
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
    match stored:
        case CellType.BOOLEAN:
            return declared or FeatureKind.BOOLEAN, None, ""
        case CellType.DATE:
            return declared or FeatureKind.DATE, None, ""
    if declared in (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN):
        return declared, None, ""
    try:
        numbers = pc.cast(cells, pa.float64(), safe=False)
    except pa.ArrowInvalid:
        return _text_kind(distinct(cells), name, declared, hints)
    if declared is not FeatureKind.NUMERIC:
        counted = counted_dates(floats(numbers), name, declared=declared is FeatureKind.DATE)
        if counted is not None:
            note = "" if declared else 'declare kind = "numeric" if these are no dates'
            return FeatureKind.DATE, counted, note
    if stored is CellType.TEXT and hints.decimal == "," and declared is not FeatureKind.DATE:
        # "1.234" in a table with decimal commas; a column with "12.5" has decimal points all the same.
        values = distinct(cells)
        reading, note = next(text_readings(values, name, hints))
        commas = isinstance(reading, NumberReading) and reading.decimal == ","
        if commas and any("." in value for value in values.values):
            return FeatureKind.NUMERIC, reading, note
    return declared or FeatureKind.NUMERIC, None, ""


def _text_kind(
    values: Distinct, name: str, declared: FeatureKind | None, hints: ReadingHints
) -> tuple[FeatureKind, Reading | None, str]:
    tried: list[tuple[float, int, str]] = []
    if declared in (None, FeatureKind.NUMERIC):
        tried.append(_tried(values, parse_number, "numbers"))
        if tried[-1][1] < 0:
            return FeatureKind.NUMERIC, None, ""
        if {value.lower() for value in values.values} <= {"true", "false"} and declared is None:
            return FeatureKind.BOOLEAN, None, ""
    if declared in (None, FeatureKind.DATE):
        tried.append(_tried(values, parse_date, "dates"))
        if tried[-1][1] < 0:
            return FeatureKind.DATE, None, ""
    words = sum(
        count for value, count in zip(values.values, values.counts().tolist(), strict=True) if is_missing_word(value)
    )
    best: tuple[float, FeatureKind, Reading] | None = None
    for reading, note in text_readings(values, name, hints):
        dates = isinstance(reading, DateReading | CountedDateReading)
        kind = FeatureKind.DATE if dates else FeatureKind.NUMERIC
        if declared not in (None, kind):
            continue
        share, misfit, _ = _tried(values, reading.parse, reading.describe())
        if misfit < 0 and words <= (1.0 - _LEAST_READ) * int(values.counts().sum()):
            return kind, reading, _with_words(note, words)
        if best is None or share > best[0]:
            best = (share, kind, reading)
        if share >= _ALMOST_ALL and misfit >= 0:
            tried.append((share, misfit, reading.describe()))
    if declared is not None:
        # The first cell that does not fit will be named, as the form that most cells have expects it.
        likely = best is not None and best[0] > max(share for share, _, _ in tried)
        return declared, best[2] if best is not None and likely else None, ""
    for share, misfit, what in sorted(tried, reverse=True):
        if share >= _MOSTLY:
            raise TableError(
                f"column {name!r}, row {values.first_row(misfit)}: {values.values[misfit]!r} among {what} "
                f"({share:.0%} of the cells are {what}): correct the cell, leave it empty if the value is "
                'missing, or declare kind = "categorical" if it is meant',
                row=values.first_row(misfit),
            )
    return FeatureKind.CATEGORICAL, None, ""


def _with_words(note: str, words: int) -> str:
    missing = f"{words} cells hold a word or sign for a missing value" if words else ""
    return "; ".join(filter(None, (note, missing)))


def _tried(values: Distinct, parse: Callable[[str], float], what: str) -> tuple[float, int, str]:
    """Share of rows whose cells can be parsed, the first distinct value that can't be (-1: none), and ``what``."""
    some = values.values[:: max(1, len(values.values) // _LOOKED_AT)]
    if not any(_parses(parse, value) for value in some):
        return 0.0, 0, what
    fitting = np.array([_parses(parse, value) for value in values.values], dtype=bool)
    counts = values.counts()
    misfit = -1 if fitting.all() else int(np.argmin(fitting))
    return float(counts[fitting].sum() / counts.sum()), misfit, what


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
