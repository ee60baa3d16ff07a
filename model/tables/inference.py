"""Inference of a column from all its cells: its kind and how its cells are written, or the reason why it is no feature.

``1,234`` alone says neither whether its comma parts thousands nor whether it is a decimal comma, and ``03/04/2020``
leaves the month open. Other cells of the column mostly tell. If none does, the user's option decides, then the other
columns of the table, then what is usual.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from murho.model.errors import TableError
from murho.model.tables.cells import parse_date, parse_number
from murho.model.tables.columns import (
    CellType,
    Distinct,
    canonical_cells,
    cell_type,
    distinct,
    holds_durations,
    is_missing,
    plain,
)
from murho.model.tables.readings import (
    MARKS,
    DateReading,
    NumberReading,
    Parts,
    is_missing_word,
    number_parts,
    written_day,
)
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import TypeVar

    from murho.model.tables.readings import DateOrder, DecimalMark, Reading

    Found = TypeVar("Found")

__all__ = ["NO_HINTS", "Inference", "ReadingHints", "hints_of_table", "infer_column", "text_readings"]


_ROWS_FOR_HINTS = 20_000
"""First rows of a table from which columns learn of each other."""
_LOOKED_AT = 500
"""Distinct cells of a column that tell whether it is worth to look at all of them."""
_NO_SLIP = 0.05
"""Share of the cells from which on an unlikely decimal mark is no slip, but a second convention."""


@dataclass(frozen=True, slots=True)
class ReadingHints:
    """What decides where a column leaves open how it is to be read.

    Attributes:
        decimal: The decimal mark; None if nothing is known.
        day_first: Whether ``03/04/2020`` is the 3rd of April; None if nothing is known.
        given: The options among the two that the user has given, by name.
    """

    decimal: DecimalMark | None = None
    day_first: bool | None = None
    given: frozenset[str] = frozenset()


NO_HINTS = ReadingHints()


class _Evidence(NamedTuple):
    """What the cells of a column say: the cells that prove either side, and the first open one, or None."""

    one: list[str]
    other: list[str]
    open: str | None


def hints_of_table(
    table: pa.Table, *, decimal: DecimalMark | None, day_first: bool | None, skip: Collection[str] = ()
) -> ReadingHints:
    """What the options say, and else what the columns of a table that leave nothing open agree on.

    Args:
        table: The table.
        decimal: The option ``--decimal``.
        day_first: The option ``--day-first``.
        skip: Columns that do not count.
    """
    given = frozenset(name for name, value in (("decimal", decimal), ("day_first", day_first)) if value is not None)
    marks: set[DecimalMark] = set()
    orders: set[bool] = set()
    first = table.slice(0, _ROWS_FOR_HINTS)
    for name in table.column_names:
        if name in skip or len(given) == 2:
            continue
        try:
            cells = plain(first.column(name), name)
        except TableError:
            continue
        if cell_type(cells) is not CellType.TEXT:
            continue
        if _are_plain_numbers(cells):
            grouped = pc.match_substring_regex(cells, "^[+-]?[1-9][0-9]{0,2}[.][0-9]{3}$")
            if pc.any(pc.and_not(pc.match_substring(cells, "."), grouped)).as_py():
                marks.add(".")
            continue
        texts = distinct(cells).values
        points, commas, _ = _decimal_evidence(_some(texts, number_parts))
        days, months, _ = _order_evidence(_some(texts, written_day))
        marks |= {mark for mark, proofs in zip(MARKS, (points, commas), strict=True) if proofs}
        orders |= {order for order, proofs in ((True, days), (False, months)) if proofs}
    if decimal is None and marks == {","}:
        decimal = ","
    if day_first is None and len(orders) == 1:
        day_first = next(iter(orders))
    return ReadingHints(decimal, day_first, given)


def _are_plain_numbers(cells: pa.ChunkedArray) -> bool:
    try:
        pc.cast(cells, pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def text_readings(values: Distinct, name: str, hints: ReadingHints) -> Iterator[tuple[Reading, str]]:
    """The readings that a column of text may have, each with a note on what was decided without proof (or "").

    A reading is likely if most of the cells have its form; the caller tries whether it reads them.

    Raises:
        TableError: Cells of the column prove that it mixes decimal marks, or the order of day and month.
    """
    texts = [text for text in values.values if not is_missing_word(text)]
    yield from _number_readings(texts, name, hints)
    yield from _date_readings(texts, name, hints)


def _number_readings(texts: Sequence[str], name: str, hints: ReadingHints) -> Iterator[tuple[Reading, str]]:
    parts = _some(texts, number_parts)
    if len(parts) * 2 < len(texts) or not parts:
        return
    points, commas, ambiguous = _decimal_evidence(parts)
    if min(len(points), len(commas)) >= _NO_SLIP * len(parts):
        raise TableError(
            f"column {name!r}: {points[0]!r} has a decimal point and {commas[0]!r} a decimal comma: write all numbers "
            'of the column alike, or declare kind = "categorical" if it holds no numbers'
        )
    decimal, note = hints.decimal or ".", ""
    if points or commas:
        decimal = "." if len(points) >= len(commas) else ","
    elif ambiguous is not None and "decimal" not in hints.given:
        value, other = parts[ambiguous].values[decimal], "." if decimal == "," else ","
        note = f"{ambiguous!r} is read as {value:.12g}; if that is wrong, give --decimal {other!r}"
    units = Counter(found.unit for found in parts.values())
    bare = units.pop("", 0)
    unit = units.most_common(1)[0][0] if units else None
    if unit == "%" and bare:
        return  # 0.12 and 12 % are not told apart by a rule
    yield NumberReading(decimal, unit), note


def _date_readings(texts: Sequence[str], name: str, hints: ReadingHints) -> Iterator[tuple[Reading, str]]:
    written = _some(texts, written_day)
    days, months, ambiguous = _order_evidence(written)
    if days and months:
        if 2 * len(written) >= len(texts):  # not words with a few dates among them
            raise TableError(
                f"column {name!r}: {days[0]!r} has the day first and {months[0]!r} the month: write all dates of the "
                'column alike, best as 2020-12-31, or declare kind = "categorical"'
            )
        return
    first, second = ({day[place] for day in written.values()} for place in (0, 1))
    day_first, why = hints.day_first, ", as in other columns"
    if days or months:
        day_first = bool(days)
    elif "day_first" not in hints.given and (1 in (len(first), len(second))) and {1} in (first, second):
        day_first, why = first == {1}, ", as the first days of months"
    elif day_first is None:
        marks = {day[2] for day in written.values()}
        day_first, why = marks == {"."}, ", as is usual with points" if marks == {"."} else ""
    order: DateOrder = "day-first" if day_first else "month-first"
    note = ""
    if not (days or months or "day_first" in hints.given) and ambiguous is not None:
        other = "--no-day-first" if day_first else "--day-first"
        note = f"{ambiguous!r} is read {order}{why}; if that is wrong, give {other}"
    yield DateReading(order if written else None), note


def _some(texts: Sequence[str], parse: Callable[[str], Found | None]) -> dict[str, Found]:
    """The texts that have a form; none if none of a few, spread over the column, has it."""
    if all(parse(text) is None for text in texts[:: max(1, len(texts) // _LOOKED_AT)]):
        return {}
    return {text: found for text in texts if (found := parse(text)) is not None}


def _decimal_evidence(parts: dict[str, Parts]) -> _Evidence:
    """The cells that prove a decimal point, and a decimal comma, and the first that is open."""
    points, commas = ([text for text, found in parts.items() if list(found.values) == [mark]] for mark in MARKS)
    return _Evidence(
        points, commas, next((text for text, found in parts.items() if len({*found.values.values()}) > 1), None)
    )


def _order_evidence(written: dict[str, tuple[int, int, str]]) -> _Evidence:
    """The cells that prove that the day, and the month, comes first, and the first that is open."""
    days, months = (
        [text for text, (*numbers, _) in written.items() if 12 < numbers[place] <= 31 and 1 <= numbers[1 - place] <= 12]
        for place in (0, 1)
    )
    return _Evidence(days, months, next((text for text, day in written.items() if day[0] != day[1]), None))


_MOSTLY = 0.8
"""A text column with at least this share of numbers (or dates) is refused: its other cells are likely mistakes."""
_ALMOST_ALL = 0.95
"""The same for readings: other texts among ``$3`` are rather categories than mistakes."""
_MOST_WORDS = 0.8
"""Share of the cells of a column with a reading that may be words for a missing cell."""

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
