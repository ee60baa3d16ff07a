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
from murho.model.data.duration_readings import DurationReading, clock_parts
from murho.model.data.number_readings import NumberReading, Parts, is_missing_word, number_parts, unit_key
from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from murho.model.data.date_readings import DateOrder
    from murho.model.data.number_readings import DecimalMark
    from murho.model.data.readings import Reading

__all__ = ["NO_HINTS", "ReadingHints", "hints_of_table", "text_readings"]

_ROWS_FOR_HINTS = 20_000
"""First rows of a table from which columns learn of each other."""
_LOOKED_AT = 500
"""Distinct cells of a column that tell whether it is worth to look at all of them."""
_LEAST_SHARE_WITH_UNIT = 0.5
"""If fewer cells of a column have the unit, cells without it are no slip, and the column has no unit."""


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
    """What the cells of a column say: the first cell that proves either side, or None, and the first open one."""

    one: str | None
    other: str | None
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
        texts = distinct(cells).values
        if _are_plain_numbers(cells):
            # They prove no comma, and the first that proves a point is enough.
            if any(_decimal_evidence(_parts_of([text])).one is not None for text in texts):
                marks.add(".")
        else:
            points, commas, _ = _decimal_evidence(_parts_of(texts))
            marks |= {mark for mark, found in ((".", points), (",", commas)) if found is not None}  # type: ignore[misc]
        days, months, _ = _order_evidence(texts)
        orders |= {order for order, found in ((True, days), (False, months)) if found is not None}
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
    yield from _number_readings(values, texts, name, hints)
    yield from _date_readings(values, texts, name, hints)
    firsts = [parts for parts in map(clock_parts, texts) if parts is not None] if _some(texts, clock_parts) else []
    if firsts and all(count == 2 for count, _ in firsts):
        hours = max(first for _, first in firsts) < 24
        note = "read as hours:minutes" if hours else "read as minutes:seconds"
        yield DurationReading("min" if hours else "s"), note
    else:
        yield DurationReading("s"), ""


def _number_readings(
    values: Distinct, texts: Sequence[str], name: str, hints: ReadingHints
) -> Iterator[tuple[Reading, str]]:
    parts = _parts_of(texts)
    if len(parts) * 2 < len(texts) or not parts:
        return
    points, commas, ambiguous = _decimal_evidence(parts)
    if points is not None and commas is not None:
        # A few cells with an unlikely mark are slips, which trying the reading names; here are two real conventions.
        sides = [_share_read(parts, mark) for mark in (".", ",")]
        if max(sides) < 1.0 and min(sides) >= 0.05:
            raise TableError(
                f"column {name!r}: {points!r} has a decimal point and {commas!r} a decimal comma: write all numbers of "
                'the column alike, or declare kind = "categorical" if it holds no numbers'
            )
        decimal: DecimalMark = "." if sides[0] >= sides[1] else ","
    elif points is not None or commas is not None:
        decimal = "." if points is not None else ","
    else:
        decimal = hints.decimal or "."
    note = ""
    if points is None and commas is None and ambiguous is not None:
        value = parts[ambiguous].value(decimal)
        if "decimal" not in hints.given and (hints.decimal is not None or "," in parts[ambiguous].number):
            other = "." if decimal == "," else ","
            note = f"{ambiguous!r} is read as {value:.12g}; if that is wrong, give --decimal {other!r}"
    units = _units(values, parts)
    if not units:
        yield NumberReading(decimal), note
        return
    unit, with_unit = units.most_common(1)[0]
    bare = sum(
        count
        for text, count in zip(values.values, values.counts().tolist(), strict=True)
        if text in parts and not parts[text].unit and parts[text].number.strip("0.,")
    )
    total = with_unit + bare
    if unit == "%" and bare:
        return  # 0.12 and 12 % are not told apart by a rule
    if with_unit >= _LEAST_SHARE_WITH_UNIT * total:
        if bare:
            note = "; ".join(filter(None, (note, f"{bare} cells have no unit, and count as {unit}")))
        yield NumberReading(decimal, unit), note
    else:
        yield NumberReading(decimal), note


def _units(values: Distinct, parts: dict[str, Parts]) -> Counter[str]:
    """The units of a column, as they are mostly written → number of cells; ways to write a unit count together."""
    written: dict[str, Counter[str]] = {}
    for text, count in zip(values.values, values.counts().tolist(), strict=True):
        if text in parts and parts[text].unit:
            unit = parts[text].unit
            written.setdefault(unit_key(unit), Counter())[unit] += count
    return Counter({ways.most_common(1)[0][0]: ways.total() for ways in written.values()})


def _date_readings(
    values: Distinct, texts: Sequence[str], name: str, hints: ReadingHints
) -> Iterator[tuple[Reading, str]]:
    days, months, ambiguous = _order_evidence(texts)
    if days is not None and months is not None:
        if 2 * sum(written_day(text) is not None for text in texts) < len(texts):
            return  # words, with a few dates among them
        counts = [values.first_row(values.values.index(text)) for text in (days, months)]
        raise TableError(
            f"column {name!r}: {days!r} (row {counts[0]}) has the day first and {months!r} (row {counts[1]}) the "
            'month: write all dates of the column alike, best as 2020-12-31, or declare kind = "categorical"'
        )
    if days is not None or months is not None:
        yield DateReading("month-first" if months is not None else "day-first"), ""
        return
    if ambiguous is None:
        # The 5th of May, 05/05/2020, is the same in both orders.
        either = _some(texts, written_day)
        yield DateReading("month-first" if either and hints.day_first is False else "day-first" if either else None), ""
        return
    order, why = _order_of_open_days(texts, hints)
    other = "--no-day-first" if order == "day-first" else "--day-first"
    note = "" if "day_first" in hints.given else f"{ambiguous!r} is read {order}{why}; if that is wrong, give {other}"
    yield DateReading(order), note


def _order_of_open_days(texts: Sequence[str], hints: ReadingHints) -> tuple[DateOrder, str]:
    """The order of a column whose days are all 12 or less, and why."""
    if "day_first" in hints.given:
        return ("day-first" if hints.day_first else "month-first"), ""
    written = [day for day in map(written_day, texts) if day is not None]
    firsts, seconds = ({day.first for day in written}, {day.second for day in written})
    if firsts == {1} and len(seconds) > 1:
        return "day-first", ", as the first days of months"
    if seconds == {1} and len(firsts) > 1:
        return "month-first", ", as the first days of months"
    if hints.day_first is not None:
        return ("day-first" if hints.day_first else "month-first"), ", as in other columns"
    if written[0].mark == ".":
        return "day-first", ", as is usual with points"
    return "month-first", ""


def _some(texts: Sequence[str], parse: Callable[[str], object | None]) -> bool:
    """Whether any of a few texts of a column, spread over it, has a form: if none does, the others need no look."""
    return any(parse(text) is not None for text in texts[:: max(1, len(texts) // _LOOKED_AT)])


def _parts_of(texts: Sequence[str]) -> dict[str, Parts]:
    """The texts that are numbers with a currency or a unit; none if none of a few is."""
    if not _some(texts, number_parts):
        return {}
    return {text: found for text in texts if (found := number_parts(text)) is not None}


def _decimal_evidence(parts: Mapping[str, Parts]) -> _Evidence:
    """The first cells that prove a decimal point, and a decimal comma, and the first that is open."""
    point = comma = ambiguous = None
    for text, found in parts.items():
        number = found.number
        points, commas = number.count("."), number.count(",")
        if not points and not commas:
            continue
        if points and commas:
            says = "." if number.rfind(".") > number.rfind(",") else ","
        elif points > 1 or commas > 1:
            says = "," if points else "."
        else:
            mark = "." if points else ","
            before, after = number.split(mark)
            grouped = len(after) == 3 and after.isdigit() and 1 <= len(before) <= 3 and before[0] in "123456789"
            says = "" if grouped else mark
        if says == ".":
            point = point or text
        elif says == ",":
            comma = comma or text
        else:
            ambiguous = ambiguous or text
    return _Evidence(point, comma, ambiguous)


def _order_evidence(texts: Sequence[str]) -> _Evidence:
    """The first cells that prove that the day, and the month, comes first, and the first that is open."""
    day_first = month_first = ambiguous = None
    for text in texts if _some(texts, written_day) else ():
        day = written_day(text)
        if day is None:
            continue
        if 12 < day.first <= 31 and 1 <= day.second <= 12:
            day_first = day_first or text
        elif 12 < day.second <= 31 and 1 <= day.first <= 12:
            month_first = month_first or text
        elif day.first != day.second:
            ambiguous = ambiguous or text
    return _Evidence(day_first, month_first, ambiguous)


def _share_read(parts: dict[str, Parts], mark: str) -> float:
    read = 0
    for found in parts.values():
        try:
            found.value(mark)  # type: ignore[arg-type]
        except ValueError:
            continue
        read += 1
    return read / len(parts)
