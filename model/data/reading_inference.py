"""How the texts of a column are to be read, decided from the whole column.

``1,234`` alone says neither whether its comma parts thousands nor whether it is a decimal comma, and ``03/04/2020``
leaves the month open. Other cells of the column mostly tell. If none does, the user's option decides, then the other
columns of the table, then what is usual.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from murho.model.data.columns import CellType, Distinct, cell_type, distinct, plain
from murho.model.data.date_readings import DateReading, written_day
from murho.model.data.number_readings import MARKS, NumberReading, Parts, is_missing_word, number_parts
from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import TypeVar

    from murho.model.data.date_readings import DateOrder
    from murho.model.data.number_readings import DecimalMark
    from murho.model.data.readings import Reading

    Found = TypeVar("Found")

__all__ = ["NO_HINTS", "ReadingHints", "hints_of_table", "text_readings"]

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
